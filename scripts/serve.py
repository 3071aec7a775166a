"""Serve a rig in the foreground until Ctrl-C or `make stop`."""

import json
import os
import shlex
import sys

from common.engines import asking
from common.engines.llamacpp import serve
from common.engines.llamacpp.build import CONTAINER
from common.measure import progress
from common.rig import Rig
from common.serving import record
from common.serving.process import Server, how
from scripts import _cli, _preparing


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    with record.serving(rig) as note:
        log = record.log_file(rig)
        running = Server(rig, _preparing.prepare(rig), log, started=note.started)
        log.unlink(missing_ok=True)
        _cli.say(f"starting; the log, in which prompts may be, is {log}")
        _cli.say(shlex.join(running.command))
        with running:
            note.ready()
            introduce(rig, running)
            code = running.follow(sys.stdout.buffer.write if docker_keeps_the_log() else None)
            if code not in serve.ORDERLY:
                raise running.death(f"llama-server has ended by itself, {how(code)}")
    _cli.say("stopped")


def docker_keeps_the_log() -> bool:
    """Whether what is said here goes to Docker, not into a background job's file without end."""
    return CONTAINER.is_file() and progress.VARIABLE not in os.environ


def introduce(rig: Rig, running: Server) -> None:
    """What a user needs next: the address, a line to try, and whether the drafter works."""
    several, _context = serve.slots(rig.url)
    _cli.say(f"ready after {running.ready_s:.1f} s: {rig.url}/v1 (OpenAI API), model {rig.model}")
    if serve.has_page(rig.url):
        _cli.say(f"chat in a browser: {rig.url}/")
    request = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
    key = f' -H "Authorization: Bearer ${asking.KEY}"' if asking.key() else ""
    _cli.say(f"try: curl {rig.url}/v1/chat/completions{key} -d {shlex.quote(json.dumps(request))}")
    _cli.say(f"slots: {several or 'unknown'}, context: {rig.ctx_size} tokens")
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
