"""Serve a rig in the foreground until Ctrl-C or `make stop`."""

import json
import shlex
import sys

from common.engines.llamacpp import serve
from common.engines.llamacpp.build import CONTAINER
from common.errors import RigError
from common.rig import Rig
from common.serving import record
from common.serving.process import Server
from scripts import _cli, _preparing


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    already = record.find(rig)
    if already:
        raise RigError(f"{rig.name} is served already at {already.url}; stop it with make stop")
    engine = _preparing.prepare(rig)
    log = record.log_file(rig)
    log.unlink(missing_ok=True)
    _cli.say(f"starting; the log is {log}")
    running = Server(rig, engine, log)
    _cli.say(shlex.join(running.command))
    recorded = False
    try:
        with running:
            assert running.process is not None
            record.record(rig, running.process.pid)
            recorded = True
            introduce(rig, running)
            if CONTAINER.is_file():  # Docker keeps the log
                code = running.follow(sys.stdout.buffer.write)
            else:
                code = running.process.wait()
            if code not in serve.ORDERLY:
                raise running.death("llama-server has ended by itself")
    finally:
        if recorded:  # a second serve that found the port taken must not forget the first
            record.forget(rig)
    _cli.say("stopped")


def introduce(rig: Rig, running: Server) -> None:
    """What a user needs next: the address, a line to try, and whether the drafter works."""
    properties = serve.properties(rig.url)
    _cli.say(f"ready after {running.ready_s:.1f} s: {rig.url}/v1 (OpenAI API), model {rig.model}")
    if serve.has_page(rig.url):
        _cli.say(f"chat in a browser: {rig.url}/")
    request = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
    _cli.say(f"try: curl {rig.url}/v1/chat/completions -d {shlex.quote(json.dumps(request))}")
    _cli.say(f"slots: {properties.get('total_slots', 'unknown')}, context: {rig.ctx_size} tokens")
    check = running.check
    if not rig.drafts:
        _cli.say("drafter: none")
    elif check and check.draft_n:
        _cli.say(f"drafter: works, kept {check.draft_n_accepted} of {check.draft_n} in a first try")
    else:
        _cli.say(
            f"drafter: {rig.spec_type}, nothing drafted in a first try (it needs repeated text)"
        )


if __name__ == "__main__":
    _cli.main(body)
