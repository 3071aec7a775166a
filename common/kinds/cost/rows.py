"""Rows: the figures of a cost run in the shape that compare has."""

from collections.abc import Iterator, Mapping
from typing import Any

from common.kinds.cost import report as cost_report
from common.measure.quantities import Row, Summary, drift, figure, speed_up


def rows(summary: Summary, _manifest: Mapping[str, Any]) -> Iterator[Row | None]:
    for arm in summary["arms"]:
        yield figure("tokens_per_second", "tokens/s", arm["arm"], arm["tokens_per_second"])
        yield speed_up(arm["speed_up"], arm["arm"])
    for row in summary["break_even"]:
        arm, note = f"n={row['draft_length']}", cost_report.in_words(row)
        cost, by_cost = row["step_cost"], row["by_cost"]
        if cost:
            ends = {"low": cost["low"], "high": cost["high"]}
            note_of_cost = f"break-even: {note}"
            yield figure("step_cost", "x", arm, cost["value"], **ends, note=note_of_cost)
        yield figure(
            "break_even_acceptance",
            "share",
            arm,
            row["at"],
            low=row["low"],
            high=row["high"],
            note=note,
        )
        if by_cost:
            ends = {"low": by_cost["low"], "high": by_cost["high"]}
            told = cost_report.by_cost_in_words(row)
            yield figure("break_even_by_cost", "share", arm, by_cost["value"], **ends, note=told)
    yield drift(summary)
