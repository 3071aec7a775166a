"""What summary.json of a speed run holds, and nothing else."""

from typing import Literal

from common.measure.summary import (
    ArmSpeed,
    Best,
    Cell,
    Count,
    Drift,
    Energy,
    Flags,
    Gaps,
    Head,
    KnownAnswer,
    MemoryMib,
    Percentiles,
    Share,
    SpeedUp,
    Strict,
    Time,
)


class Arm(ArmSpeed):
    ttft_ms: float | None
    """geometric mean"""
    ttft: Percentiles | None
    content: Percentiles | None
    """to the first text that is not reasoning; in ms, like the two beside it"""
    reply: Percentiles | None
    """from sending to the end"""
    gaps: Gaps | None
    reading_per_second: float | None
    """prompt tokens"""
    whole_reply: SpeedUp | None
    """of output tokens over the time of whole replies"""
    memory_mib: MemoryMib


class EqualText(Strict):
    arm: str
    equal: Count
    of: Count


class Summary(Head):
    headline: Literal["greedy", "sampled"]
    """how the replies were drawn that the answer is made from; `beside` holds the other"""
    best: Best | None
    arms: list[Arm]
    beside: list[ArmSpeed]
    beside_repetition: Share | None
    cells: list[Cell]
    energy: Energy | None
    equal_text: list[EqualText]
    drift: Drift
    flags: Flags
    known_answer: list[KnownAnswer] | None
    time: Time
