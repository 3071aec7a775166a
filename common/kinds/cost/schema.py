"""What summary.json of a cost run holds, and nothing else."""

from typing import Literal

from common.measure.summary import (
    Drift,
    Flags,
    Head,
    Kept,
    MemoryMib,
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


class BreakEven(Strict):
    draft_length: Some
    at: Share | None
    low: Share | None
    high: Share | None
    why: Literal[None, "below", "above"]
    least: Share | None
    most: Share | None
    step_cost: float | None
    by_cost: Share | None


class Summary(Head):
    shape: Literal["e2b", "e4b", "12b", "26b", "31b", "tiny"]
    arms: list[Arm]
    break_even: list[BreakEven]
    drift: Drift
    flags: Flags
    time: Time
