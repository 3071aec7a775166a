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
from scripts import cli, preparing


def body() -> None:
    rig = cli.load_rig(cli.parser(__doc__).parse_args().rig)
    already = record.find(rig)
    if already:
        raise RigError(f"{rig.name} is served already at {already.url}; stop it with make stop")
    engine = preparing.prepare(rig)
    log = record.log_file(rig)
    log.unlink(missing_ok=True)
    cli.say(f"starting; the log is {log}")
    running = Server(rig, engine, log)
    cli.say(shlex.join(running.command))
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
    cli.say("stopped")


def introduce(rig: Rig, running: Server) -> None:
    """What a user needs next: the address, a line to try, and whether the drafter works."""
    properties = serve.properties(rig.url)
    cli.say(f"ready after {running.ready_s:.1f} s: {rig.url}/v1 (OpenAI API), model {rig.model}")
    if serve.has_page(rig.url):
        cli.say(f"chat in a browser: {rig.url}/")
    request = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
    cli.say(f"try: curl {rig.url}/v1/chat/completions -d {shlex.quote(json.dumps(request))}")
    cli.say(f"slots: {properties.get('total_slots', 'unknown')}, context: {rig.ctx_size} tokens")
    check = running.check
    if not rig.drafts:
        cli.say("drafter: none")
    elif check and check.draft_n:
        cli.say(f"drafter: works, kept {check.draft_n_accepted} of {check.draft_n} in a first try")
    else:
        cli.say(
            f"drafter: {rig.spec_type}, nothing drafted in a first try (it needs repeated text)"
        )


if __name__ == "__main__":
    cli.main(body)
