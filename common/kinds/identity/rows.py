"""Rows: the figures of an identity run in the shape that compare has."""

from collections.abc import Iterator

from common.kinds.identity.schema import Summary
from common.measure.journal import Manifest
from common.measure.quantities import Row, figure


def rows(summary: Summary, _manifest: Manifest) -> Iterator[Row | None]:
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
