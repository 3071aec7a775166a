"""Let an MCP client drive a rig: write its entry into .mcp.json of the project's folder."""

import json
import os

from common.mcp import registration
from scripts import cli


def body() -> None:
    rig = cli.load_rig(cli.parser(__doc__).parse_args().rig)
    runner = os.environ.get("RUNNER", "host")
    path = registration.write(rig, runner)
    cli.say(f"wrote {path}:")
    cli.say(json.dumps({rig.name: registration.entry(rig, runner)}, indent=2))
    cli.say("open this folder in the client, or copy the entry to where it keeps its servers")


if __name__ == "__main__":
    cli.main(body)
