"""What summary.json of a speed run holds, and nothing else."""

from typing import Literal

from common.measure.summary import (
    Cell,
    Count,
    Drift,
    Flags,
    Kept,
    KnownAnswer,
    MemoryMib,
    SpeedUp,
    Strict,
    Time,
)


class Arm(Strict):
    arm: str
    tokens_per_second: float | None
    speed_up: SpeedUp | None
    kept: Kept | None
    ttft_ms: float | None
    memory_mib: MemoryMib


class Sampled(Strict):
    arm: str
    tokens_per_second: float | None
    speed_up: SpeedUp | None
    kept: Kept | None


class EqualText(Strict):
    arm: str
    equal: Count
    of: Count


class Summary(Strict):
    schema: Literal[1]
    what: Literal["speed"]
    rig: str
    quick: bool
    complete: bool
    arms: list[Arm]
    sampled: list[Sampled]
    cells: list[Cell]
    equal_text: list[EqualText]
    drift: Drift
    flags: Flags
    known_answer: list[KnownAnswer] | None
    time: Time
