"""Rows: the figures of a sweep run in the shape that compare has."""

from collections.abc import Iterator, Mapping
from typing import Any

from common.kinds.sweep import report as sweep_report
from common.measure.quantities import Row, Summary, drift, figure, kept_share, speed_up


def rows(summary: Summary, _manifest: Mapping[str, Any]) -> Iterator[Row | None]:
    for row in summary["ratios"]:
        place = place_of(row)
        for layout, up in row["drafter"].items():
            yield speed_up(up, f"drafter, {layout}", place)
        for name, up in row["sharing"].items():
            yield speed_up(up, name, place, "shared_over_per_slot")
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
    yield drift(summary)


def place_of(cell: Mapping[str, Any]) -> str:
    """Where a cell's figures belong: its kind of prompts, and how many are asked at once."""
    return f"{cell['kind']}, {cell['at_once']} at once"
