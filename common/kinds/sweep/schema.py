"""What summary.json of a sweep or longmixed run holds, and nothing else."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import NotRequired

from common.measure.summary import (
    Count,
    Drift,
    Energy,
    Failed,
    Flags,
    Gaps,
    Head,
    Infeasible,
    Kept,
    KnownAnswer,
    MemoryMib,
    Percentiles,
    Reach,
    Share,
    SpeedUp,
    Strict,
    Time,
)


class Document(Strict):
    document: NotRequired[str]
    document_sha256: NotRequired[str]


Layout = Literal["per-slot", "shared"]


class Waits(Strict):
    """What users wait for, request by request, in ms."""

    requests: Count
    ttft: Percentiles | None
    tpot: Percentiles | None
    """per output token after the first"""
    reply: Percentiles | None
    """from sending to the end"""
    gaps: Gaps | None
    goodput: Share | None
    """the share within both limits; None without a limit"""


class Measured(Strict):
    arm: str
    kind: str
    at_once: Count
    tokens_per_second: float | None
    total_per_second: float | None
    """tokens read and written"""
    requests_per_second: float | None
    round_spread: float | None
    waits: Waits
    busy_slots: float | None
    kept: Kept | None
    memory_mib: MemoryMib
    trials: Count


class Row(Measured):
    """Batches of one shape."""

    shape: str


class Loop(Measured):
    """Closed loops, in their steady part."""


# Both layouts, each with its speed-up.
Drafter = Annotated[dict[Layout, SpeedUp | None], Field(min_length=2, max_length=2)]


class Sharing(Strict):
    none: SpeedUp | None
    drafter: SpeedUp | None


class Ratio(Strict):
    """Over all shapes alike."""

    kind: str
    at_once: Count
    drafter: Drafter
    """by batches"""
    loop: Drafter
    """in closed loops"""
    sharing: Sharing


class ShapeRatio(Strict):
    kind: str
    shape: str
    at_once: Count
    drafter: Drafter


class Turn(Reach):
    kind: str
    layout: Layout
    loop: bool
    """whether it is that of closed loops; else of batches"""
    most: float | None


class Limits(Strict):
    """What goodput counts, in ms."""

    ttft: float | None
    tpot: float | None


class Summary(Head):
    document: Document
    limits: Limits
    rows: list[Row]
    loops: list[Loop]
    ratios: list[Ratio]
    by_shape: list[ShapeRatio]
    turns: list[Turn]
    energy: Energy | None
    infeasible: list[Infeasible]
    failed: list[Failed]
    cells_wrong: list[str] | None
    drift: Drift
    flags: Flags
    known_answer: list[KnownAnswer] | None
    time: Time
