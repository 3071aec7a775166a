"""Rows: the figures of a sweep run in the shape that compare has."""

from collections.abc import Iterator, Mapping
from typing import Any

from common.kinds.sweep import report as sweep_report
from common.kinds.sweep.schema import Summary
from common.measure import energy
from common.measure.journal import Manifest
from common.measure.quantities import Row, drift, figure, kept_share, speed_up


def rows(summary: Summary, _manifest: Manifest) -> Iterator[Row | None]:
    for ratio in summary["ratios"]:
        place = place_of(ratio)
        for layout, up in ratio["drafter"].items():
            yield speed_up(up, f"drafter, {layout}", place)
        yield speed_up(ratio["sharing"]["none"], "none", place, "shared_over_per_slot")
        yield speed_up(ratio["sharing"]["drafter"], "drafter", place, "shared_over_per_slot")
    for row in summary["rows"]:
        place = f"{row['kind']} {row['shape']}, {row['at_once']} at once"
        yield figure("tokens_per_second", "tokens/s", row["arm"], row["tokens_per_second"], place)
        yield kept_share(row["kept"], row["arm"], place)
    for turn in summary["turns"]:
        note = sweep_report.in_words(turn)
        value = turn["most"] if turn["at"] is None else turn["at"]
        quantity = "gain_gone_at" if turn["at"] is not None else "most_measured"
        yield figure(
            quantity,
            "requests",
            f"drafter, {turn['layout']}",
            value,
            turn["kind"],
            note=note,
            low=turn["low"],
            high=turn["high"],
        )
    yield from energy.figures(summary["energy"])
    yield drift(summary)


def place_of(cell: Mapping[str, Any]) -> str:
    """Where a cell's figures belong: its kind of prompts, and how many are asked at once."""
    return f"{cell['kind']}, {cell['at_once']} at once"
