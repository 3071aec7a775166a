"""Print the llama-server line of a rig, flag for flag, and what the environment changed."""

import shlex

from common.engines.llamacpp import serve
from scripts import cli


def body() -> None:
    rig = cli.load_rig(cli.parser(__doc__).parse_args().rig)
    cli.say(shlex.join(serve.command(rig, "llama-server")))
    extra = serve.command(rig, "", measuring=True)[len(serve.command(rig, "")) :]
    cli.say(f"# when measuring also: {shlex.join(extra)}")
    for key in rig.overridden:
        cli.say(f"# {key} comes from the environment, not from tpu.env")


if __name__ == "__main__":
    cli.main(body)
