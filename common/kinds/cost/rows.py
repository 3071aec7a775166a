"""Rows: the figures of a cost run in the shape that compare has."""

from collections.abc import Iterator

from common.kinds.cost import report as cost_report
from common.kinds.cost.schema import Summary
from common.measure.journal import Manifest
from common.measure.quantities import Row, drift, figure, speed_up


def rows(summary: Summary, _manifest: Manifest) -> Iterator[Row | None]:
    for arm in summary["arms"]:
        yield figure("tokens_per_second", "tokens/s", arm["arm"], arm["tokens_per_second"])
        yield speed_up(arm["speed_up"], arm["arm"])
    for row in summary["break_even"]:
        name, note = f"n={row['draft_length']}", cost_report.in_words(row)
        cost, by_cost = row["step_cost"], row["by_cost"]
        if cost:
            yield figure(
                "step_cost",
                "x",
                name,
                cost["value"],
                low=cost["low"],
                high=cost["high"],
                note=f"break-even: {note}",
            )
        yield figure(
            "break_even_acceptance",
            "share",
            name,
            row["at"],
            low=row["low"],
            high=row["high"],
            note=note,
        )
        if by_cost:
            yield figure(
                "break_even_by_cost",
                "share",
                name,
                by_cost["value"],
                low=by_cost["low"],
                high=by_cost["high"],
                note=cost_report.by_cost_in_words(row),
            )
    yield drift(summary)
