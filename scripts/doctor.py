"""Say what this host has and lacks for a rig, with the fix. Exit 1 if the rig cannot run."""

import os

from common.host import doctor
from scripts import _cli

MARKS = {"ok": "ok   ", "lacks": "LACKS", "note": "note "}


def body() -> int:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    checks = doctor.examine(rig, os.environ.get("RUNNER", "host"))
    for check in checks:
        _cli.say(f"{MARKS[check.state]}  {check.name}: {check.text}")
        if check.fix:
            _cli.say(f"       -> {check.fix}")
    lacking = [check.name for check in checks if check.state == "lacks"]
    if lacking:
        _cli.say(f"{rig.name} cannot run on this host yet: {', '.join(lacking)}")
        return 1
    _cli.say(f"{rig.name} can run on this host")
    return 0


if __name__ == "__main__":
    _cli.main(body)
