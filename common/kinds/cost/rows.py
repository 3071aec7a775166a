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
        yield figure("step_cost", "x", name, row["step_cost"], note=f"break-even: {note}")
        yield figure(
            "break_even_acceptance",
            "share",
            name,
            row["at"],
            low=row["low"],
            high=row["high"],
            note=note,
        )
        yield figure("break_even_by_cost", "share", name, row["by_cost"])
    yield drift(summary)
