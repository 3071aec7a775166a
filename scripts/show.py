"""Print the llama-server line of a rig, flag for flag, and what the environment changed."""

import shlex

from common.engines.llamacpp import serve
from scripts import _cli


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    _cli.say(shlex.join(serve.command(rig, "llama-server")))
    extra = serve.command(rig, "", measuring=True)[len(serve.command(rig, "")) :]
    _cli.say(f"# when measuring also: {shlex.join(extra)}")
    for line in rig.from_outside():
        _cli.say(f"# {line}")


if __name__ == "__main__":
    _cli.main(body)
