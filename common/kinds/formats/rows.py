"""Rows: the figures of a formats run in the shape that compare has."""

from collections.abc import Iterator

from common.kinds.formats.schema import Summary
from common.measure.journal import Manifest
from common.measure.quantities import Row, drift, figure, kept_share, peak_memory, speed_up


def rows(summary: Summary, _manifest: Manifest) -> Iterator[Row | None]:
    for arm in summary["arms"]:
        name = arm["arm"]
        yield figure("tokens_per_second", "tokens/s", name, arm["tokens_per_second"])
        yield speed_up(arm["speed_up"], name)
        yield speed_up(arm["over_own"], name, quantity=f"speed_over_{summary['own'].lower()}")
        yield kept_share(arm["kept"], name)
        yield peak_memory(arm["memory_mib"], name)
    equal = summary["all_equal"]
    yield figure(
        "equal_replies", "replies", "all formats", equal["equal"], note=f"of {equal['of']}"
    )
    yield drift(summary)
