"""Measured: the figures of any run in one shape, one row each, from its summary.

Every row says what was measured (`quantity`, `arm`, `place`, `unit`), the value and, where there is
one, its 95% interval. A kind of measurement that has no rows here is still listed, by its answer.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from common.kinds.accuracy import rows as accuracy
from common.kinds.cost import rows as cost
from common.kinds.formats import rows as formats
from common.kinds.identity import rows as identity
from common.kinds.longctx import rows as longctx
from common.kinds.speed import rows as speed
from common.kinds.sweep import rows as sweep
from common.measure.quantities import Row, Summary


def rows(summary: Summary, manifest: Mapping[str, Any]) -> list[Row]:
    """The figures of one run; empty for a kind without figures of its own here."""
    make = KINDS.get(summary["what"])
    return [] if make is None else [row for row in make(summary, manifest) if row]


def place_of(what: str, cell: Mapping[str, Any]) -> str:
    """Where a cell of the manifest belongs: the place its figures are given for."""
    if what == "longctx":
        return longctx.place_of(cell)
    if what in ("sweep", "longmixed"):
        return sweep.place_of(cell)
    return ""


KINDS: dict[str, Callable[[Summary, Mapping[str, Any]], Iterator[Row | None]]] = {
    "speed": speed.rows,
    "longctx": longctx.rows,
    "sweep": sweep.rows,
    "longmixed": sweep.rows,
    "accuracy": accuracy.rows,
    "identity": identity.rows,
    "formats": formats.rows,
    "cost": cost.rows,
}
