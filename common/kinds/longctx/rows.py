"""Rows: the figures of a longctx run in the shape that compare has."""

from collections.abc import Iterator, Mapping
from typing import Any

from common.kinds.longctx import report as longctx_report
from common.kinds.longctx.schema import Summary
from common.measure.journal import Manifest
from common.measure.quantities import Row, drift, figure, kept_share, speed_up


def rows(summary: Summary, _manifest: Manifest) -> Iterator[Row | None]:
    for row in summary["rows"]:
        arm, place = row["arm"], place_of(row)
        yield figure("tokens_per_second", "tokens/s", arm, row["tokens_per_second"], place)
        yield speed_up(row["speed_up"], arm, place)
        yield figure("reading", "tokens/s", arm, row["reading_per_second"], place)
        yield kept_share(row["kept"], arm, place)
    for gone in summary["gone"]:
        note = longctx_report.in_words(gone)
        value = gone["deepest"] if gone["at"] is None else gone["at"]
        quantity = "gain_gone_at" if gone["at"] is not None else "deepest_measured"
        yield figure(
            quantity, "tokens", gone["arm"], value, note=note, low=gone["low"], high=gone["high"]
        )
    yield drift(summary)


def place_of(cell: Mapping[str, Any]) -> str:
    """Where a cell's figures belong: its depth."""
    return f"depth {cell['depth']:,}"
