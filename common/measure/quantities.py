"""Quantities: one figure of a run in the shape that compare has, whatever measured it.

Every row says what was measured (quantity, arm, place, unit), the value and, where there is one,
its 95% interval.
"""

from typing_extensions import TypedDict

from common.measure.page import Drifted
from common.measure.rows import significant
from common.measure.stats import Verdict
from common.measure.summary import Interval, Kept, MemoryMib


class Row(TypedDict):
    quantity: str
    arm: str
    place: str
    unit: str
    value: float
    low: float | None
    high: float | None
    verdict: Verdict | None
    note: str | None


def figure(
    quantity: str,
    unit: str,
    arm: str,
    value: float | None,
    place: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    verdict: Verdict | None = None,
    note: str | None = None,
) -> Row | None:
    """A row, or None where the value is absent."""
    if value is None:
        return None
    return {
        "quantity": quantity,
        "arm": arm,
        "place": place,
        "unit": unit,
        "value": value,
        "low": low,
        "high": high,
        "verdict": verdict,
        "note": note,
    }


def speed_up(
    up: Interval | None,
    arm: str,
    place: str = "",
    quantity: str = "speed_up",
    note: str | None = None,
) -> Row | None:
    if up is None:
        return None
    return figure(
        quantity,
        "x",
        arm,
        up["ratio"],
        place,
        low=up["low"],
        high=up["high"],
        verdict=up["verdict"],
        note=note,
    )


def kept_share(kept: Kept | None, arm: str, place: str = "") -> Row | None:
    return figure("kept", "share", arm, kept["share"], place) if kept else None


def peak_memory(found: MemoryMib, arm: str) -> Row | None:
    """Peak memory of the card if there is one, else of the process."""
    if found["card_peak"] is not None:
        return figure("card_memory", "MiB", arm, found["card_peak"])
    return figure("process_memory", "MiB", arm, found["process_peak"])


def drift(summary: Drifted) -> Row | None:
    drift = summary["drift"]
    if drift["change"] is None:
        return None
    return figure("drift", "%", drift["arm"], significant(100 * drift["change"]))
