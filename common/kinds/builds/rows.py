"""Rows: the figures of a builds run in the shape that compare has."""

from collections.abc import Iterator

from common.kinds.builds.schema import Summary
from common.measure import energy
from common.measure.journal import Manifest
from common.measure.quantities import (
    Row,
    drift,
    figure,
    kept_share,
    peak_memory,
    speed_up,
)


def rows(summary: Summary, _manifest: Manifest) -> Iterator[Row | None]:
    for arm in summary["arms"]:
        name = arm["arm"]
        yield figure("tokens_per_second", "tokens/s", name, arm["tokens_per_second"])
        yield speed_up(arm["over_rig"], name, quantity="speed_over_own_build")
        yield speed_up(arm["speed_up"], name)
        yield kept_share(arm["kept"], name)
        yield figure("ttft", "ms", name, arm["ttft_ms"])
        yield peak_memory(arm["memory_mib"], name)
    yield from energy.figures(summary["energy"])
    yield drift(summary)
