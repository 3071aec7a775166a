"""What summary.json of a longctx run holds, and nothing else."""

from common.measure.summary import (
    Count,
    Drift,
    Failed,
    Flags,
    Head,
    Infeasible,
    Kept,
    KnownAnswer,
    MemoryMib,
    Reach,
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
    reading_per_second: float | None
    """prompt tokens, of what was not reused"""
    trials: Count


class Gone(Reach):
    arm: str
    deepest: float | None


class Summary(Head):
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
