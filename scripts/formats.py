"""Measure the drafter as exact Q4_0, Q8_0 and bf16, and write a dated report."""

from pathlib import Path

from common import formats
from scripts import cli, measuring, preparing


def body() -> int:
    parser = cli.parser(__doc__)
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    arguments = parser.parse_args()
    rig = cli.load_rig(arguments.rig)
    built = preparing.prepare(rig)  # the rig's own files first: the plan notes their digests
    return measuring.measure(rig, formats.plan(rig, cli.flag("QUICK")), arguments.out, built)


if __name__ == "__main__":
    cli.main(body)
