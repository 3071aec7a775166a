"""Measure what each draft length is worth, and write a dated report."""

from common.kinds.speed import plan as speed
from scripts import cli, measuring


def body() -> int:
    rig, out = measuring.arguments(__doc__)
    return measuring.measure(rig, speed.plan(rig, cli.flag("QUICK")), out)


if __name__ == "__main__":
    cli.main(body)
