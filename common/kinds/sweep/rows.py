"""Rows: the figures of a sweep run in the shape that compare has."""

from collections.abc import Iterator, Mapping
from typing import Any

from common.kinds.sweep import report as sweep_report
from common.kinds.sweep.schema import Measured, Summary
from common.measure import energy
from common.measure.journal import Manifest
from common.measure.quantities import Row, drift, figure, kept_share, speed_up

LOOP = "closed loop, "
"""how a place begins where requests are sent one after the other"""


def rows(summary: Summary, _manifest: Manifest) -> Iterator[Row | None]:
    for ratio in summary["ratios"]:
        place = place_of(ratio)
        for layout, up in ratio["drafter"].items():
            yield speed_up(up, f"drafter, {layout}", place)
        for layout, up in ratio["loop"].items():
            yield speed_up(up, f"drafter, {layout}", f"{LOOP}{place}")
        yield speed_up(ratio["sharing"]["none"], "none", place, "shared_over_per_slot")
        yield speed_up(ratio["sharing"]["drafter"], "drafter", place, "shared_over_per_slot")
    for row in summary["rows"]:
        yield from _measured(row, f"{row['kind']} {row['shape']}, {row['at_once']} at once")
    for loop in summary["loops"]:
        yield from _measured(loop, f"{LOOP}{place_of(loop)}")
    for turn in summary["turns"]:
        value = turn["most"] if turn["at"] is None else turn["at"]
        quantity = "gain_gone_at" if turn["at"] is not None else "most_measured"
        yield figure(
            quantity,
            "requests",
            f"drafter, {turn['layout']}",
            value,
            f"{LOOP if turn['loop'] else ''}{turn['kind']}",
            note=sweep_report.in_words(turn),
            low=turn["low"],
            high=turn["high"],
        )
    yield from energy.figures(summary["energy"])
    yield drift(summary)


def _measured(row: Measured, place: str) -> Iterator[Row | None]:
    arm, waits = row["arm"], row["waits"]
    yield figure("tokens_per_second", "tokens/s", arm, row["tokens_per_second"], place)
    yield figure("total_tokens_per_second", "tokens/s", arm, row["total_per_second"], place)
    yield figure("requests_per_second", "requests/s", arm, row["requests_per_second"], place)
    yield figure("goodput", "share", arm, waits["goodput"], place)
    for name, found in (("ttft", waits["ttft"]), ("tpot", waits["tpot"])):
        yield figure(f"{name}_p99", "ms", arm, found["p99"] if found else None, place)
    yield kept_share(row["kept"], arm, place)


def place_of(cell: Mapping[str, Any]) -> str:
    """Where a cell's figures belong: its kind of prompts, and how many are asked at once."""
    return f"{LOOP if cell.get('loop') is True else ''}{cell['kind']}, {cell['at_once']} at once"
