"""Let an MCP client drive a rig: write its entry into .mcp.json of the project's folder."""

import json
import os

from common.mcp import registration
from scripts import _cli


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    runner = os.environ.get("RUNNER", "host")
    path = registration.write(rig, runner)
    _cli.say(f"wrote {path}:")
    _cli.say(json.dumps({rig.name: registration.entry(rig, runner)}, indent=2))
    _cli.say("open this folder in the client, or copy the entry to where it keeps its servers")


if __name__ == "__main__":
    _cli.main(body)
