"""Rows: the figures of an identity run in the shape that compare has."""

from collections.abc import Iterator, Mapping
from typing import Any

from common.measure.quantities import Row, Summary, figure


def rows(summary: Summary, _manifest: Mapping[str, Any]) -> Iterator[Row | None]:
    for arm in summary["arms"]:
        place = "control" if arm["control"] else ""
        yield figure(
            "equal_replies",
            "replies",
            arm["arm"],
            arm["equal"],
            place,
            note=f"of {arm['of']}; {arm['near_ties']} part at a near-tie",
        )
