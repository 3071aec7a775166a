"""What summary.json of a formats run holds, and nothing else."""

from common.measure.summary import (
    Cell,
    Count,
    Drift,
    EqualReplies,
    Flags,
    Head,
    Kept,
    KnownAnswer,
    MemoryMib,
    Some,
    SpeedUp,
    Strict,
    Time,
)


class File(Strict):
    name: str
    size: Count
    sha256: str


class Arm(Strict):
    arm: str
    file: File | None
    tokens_per_second: float | None
    speed_up: SpeedUp | None
    over_own: SpeedUp | None
    kept: Kept | None
    memory_mib: MemoryMib
    equal_none: EqualReplies | None
    equal_own: EqualReplies | None


class Summary(Head):
    own: str
    draft_length: Some
    arms: list[Arm]
    cells: list[Cell]
    all_equal: EqualReplies
    known_answer: list[KnownAnswer] | None
    drift: Drift
    flags: Flags
    time: Time
