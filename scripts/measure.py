"""Measure one thing on a rig (speed, longctx, sweep ...), and write a dated report."""

from common import kinds
from scripts import _cli, _measuring
from scripts.lists import measured


def body() -> int:
    line = _cli.parser(__doc__)
    names = list(measured())
    line.add_argument("kind", metavar="KIND", choices=names, help=", ".join(names))
    rig, out, given = _measuring.arguments(line)
    _measuring.measure_kind(kinds.of(given.kind), rig, out)
    return 0


if __name__ == "__main__":
    _cli.main(body)
