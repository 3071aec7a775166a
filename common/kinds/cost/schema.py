"""What summary.json of a cost run holds, and nothing else."""

from typing import Literal

from common.measure.summary import (
    Drift,
    Flags,
    Head,
    Kept,
    MemoryMib,
    Positive,
    Share,
    Some,
    SpeedUp,
    Strict,
    Time,
)


class Arm(Strict):
    arm: str
    draft_length: Some | None
    accept: Share | None
    tokens_per_second: float | None
    speed_up: SpeedUp | None
    kept: Kept | None
    kept_set: Share | None
    step_cost: float | None
    memory_mib: MemoryMib


class Times(Strict):
    value: Positive
    low: Positive | None
    high: Positive | None


class Acceptance(Strict):
    """None: no acceptance is high enough; of an end, also that the step cost has no interval."""

    value: Share | None
    low: Share | None
    high: Share | None


class BetweenPoints(Strict):
    """Read off between measured acceptances. `at` is None where `why` says that none lies on the
    other side, `low` or `high` where that end of the interval lies outside of them."""

    draft_length: Some
    at: Share | None
    low: Share | None
    high: Share | None
    why: Literal[None, "below", "above", "mixed"]
    sure: bool
    least: Share | None
    most: Share | None


class ByCost(Strict):
    step_cost: Times | None
    by_cost: Acceptance | None
    shorter: Some | None
    over_shorter: Times | None


class BreakEven(BetweenPoints, ByCost):
    """Of one draft length."""


class Summary(Head):
    shape: Literal["e2b", "e4b", "12b", "26b", "31b", "tiny"]
    arms: list[Arm]
    break_even: list[BreakEven]
    drift: Drift
    flags: Flags
    time: Time
