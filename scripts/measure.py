"""Measure one thing on a rig (speed, longctx, sweep ...), and write a dated report."""

from common import kinds
from scripts import cli, measuring


def body() -> int:
    line = cli.parser(__doc__)
    names = [kind.name for kind in kinds.KINDS if kind.of_rig and kind.name != "tune"]
    line.add_argument("kind", metavar="KIND", choices=names, help=", ".join(names))
    rig, out, given = measuring.arguments(line)
    measuring.measure_kind(kinds.of(given.kind), rig, out)
    return 0


if __name__ == "__main__":
    cli.main(body)
