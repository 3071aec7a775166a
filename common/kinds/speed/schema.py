"""What summary.json of a speed run holds, and nothing else."""

from common.measure.summary import (
    ArmSpeed,
    Cell,
    Count,
    Drift,
    Flags,
    Head,
    KnownAnswer,
    MemoryMib,
    Strict,
    Time,
)


class Arm(ArmSpeed):
    ttft_ms: float | None
    memory_mib: MemoryMib


class EqualText(Strict):
    arm: str
    equal: Count
    of: Count


class Summary(Head):
    arms: list[Arm]
    sampled: list[ArmSpeed]
    cells: list[Cell]
    equal_text: list[EqualText]
    drift: Drift
    flags: Flags
    known_answer: list[KnownAnswer] | None
    time: Time
