"""What summary.json of a longctx run holds, and nothing else."""

from typing import Literal

from common.measure.summary import (
    Count,
    Drift,
    Failed,
    Flags,
    Infeasible,
    Kept,
    KnownAnswer,
    MemoryMib,
    SpeedUp,
    Strict,
    Time,
)


class Document(Strict):
    document: str
    document_sha256: str


class Row(Strict):
    depth: Count
    arm: str
    tokens_per_second: float | None
    speed_up: SpeedUp | None
    kept: Kept | None
    memory_mib: MemoryMib
    reused: float | None
    trials: Count


class Gone(Strict):
    arm: str
    at: float | None
    low: float | None
    high: float | None
    why: Literal[None, "holds", "never"]
    pays_to: float | None
    deepest: float | None


class Summary(Strict):
    schema: Literal[1]
    what: Literal["longctx"]
    rig: str
    quick: bool
    complete: bool
    document: Document
    rows: list[Row]
    gone: list[Gone]
    infeasible: list[Infeasible]
    failed: list[Failed]
    drift: Drift
    flags: Flags
    known_answer: list[KnownAnswer] | None
    time: Time
    cells_wrong: list[str] | None
