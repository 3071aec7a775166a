"""Ask the questions of GSM8K and BFCL of two arms, and write a dated report on the answers."""

from common.kinds.accuracy import plan as accuracy
from scripts import cli, measuring


def body() -> int:
    rig, out = measuring.arguments(__doc__)
    rig = accuracy.served(rig)
    return measuring.measure(rig, accuracy.plan(rig), out)


if __name__ == "__main__":
    cli.main(body)
