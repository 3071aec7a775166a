"""Measure the drafter as exact Q4_0, Q8_0 and bf16, and write a dated report."""

from common.kinds.formats import plan as formats
from scripts import cli, measuring, preparing


def body() -> int:
    rig, out = measuring.arguments(__doc__)
    built = preparing.prepare(rig)  # the rig's own files first: the plan notes their digests
    return measuring.measure(rig, formats.plan(rig, cli.flag("QUICK")), out, built)


if __name__ == "__main__":
    cli.main(body)
