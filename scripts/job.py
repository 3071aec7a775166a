"""Run a script as a background job, and note how it ended. Called by common/mcp/jobs.py."""

import argparse
import signal
import subprocess
from pathlib import Path

from common.mcp import jobs
from scripts import _cli


def body() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where the job is noted")
    parser.add_argument("verb", metavar="SCRIPT", choices=(jobs.SERVE, *jobs.KINDS))
    parser.add_argument("rig", metavar="RIG", help="the rig's folder, or its name")
    arguments = parser.parse_args()
    rig = _cli.load_rig(arguments.rig)
    # Signals go to the whole group. This process outlives them, to note the script's exit code;
    # a handler, unlike "ignore", is not inherited, so the script gets Ctrl-C as from a terminal.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    with subprocess.Popen(_cli.command(arguments.verb, arguments.rig)) as process:
        jobs.note_start(
            arguments.folder, rig, arguments.verb, _cli.flag("QUICK"), _cli.flag("RESUME")
        )
        code = process.wait()
    jobs.note_end(arguments.folder, code)
    return 0


if __name__ == "__main__":
    _cli.main(body)
