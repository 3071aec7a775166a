"""Rows: the figures of a speed run in the shape that compare has."""

from collections.abc import Iterator

from common.kinds.speed.schema import Summary
from common.measure import energy
from common.measure.journal import Manifest
from common.measure.quantities import Row, drift, figure, kept_share, peak_memory, speed_up


def rows(summary: Summary, manifest: Manifest) -> Iterator[Row | None]:
    for arm in summary["arms"]:
        name = arm["arm"]
        yield figure("tokens_per_second", "tokens/s", name, arm["tokens_per_second"])
        yield speed_up(arm["speed_up"], name)
        yield kept_share(arm["kept"], name)
        yield speed_up(arm["whole_reply"], name, quantity="whole_reply_speed_up")
        yield figure("ttft", "ms", name, arm["ttft_ms"])
        yield figure("reading", "tokens/s", name, arm["reading_per_second"])
        yield peak_memory(arm["memory_mib"], name)
    if best := summary["best"]:
        name, note = best["arm"], f"best of {best['of']}"
        yield speed_up(best["speed_up"], name, quantity="best_speed_up", note=note)
        length = manifest["plan"]["arms"].get(name, {}).get("SPEC_DRAFT_N_MAX")
        yield figure("best_draft_length", "tokens", name, int(length) if length else None)
    place = "temperature 0.8" if summary["headline"] == "greedy" else "temperature 0"
    for arm_beside in summary["beside"]:
        yield speed_up(arm_beside["speed_up"], arm_beside["arm"], place)
    yield from energy.figures(summary["energy"])
    yield drift(summary)
