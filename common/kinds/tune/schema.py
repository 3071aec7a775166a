"""What summary.json of a tune run holds, and nothing else."""

from typing import Literal

from typing_extensions import NotRequired

from common.measure.summary import (
    Count,
    Drift,
    Energy,
    Failed,
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

Workload = Literal["chat", "documents", "many"]


class Document(Strict):
    document: NotRequired[str]
    document_sha256: NotRequired[str]


class Dropped(Strict):
    after: Count
    failed: bool
    why: str


class Row(Strict):
    arm: str
    changes: dict[str, str]
    prompts: Count
    tokens_per_second: float | None
    speed_up: SpeedUp | None
    kept: Kept | None
    memory_mib: MemoryMib
    dropped: Dropped | None


class Stage(Strict):
    lever: str
    over: str
    skipped: str | None
    best: str | None
    rows: list[Row]


class Confirmed(Strict):
    arm: str
    tokens_per_second: float | None
    over_current: SpeedUp | None
    over_none: SpeedUp | None
    by_round: list[float | None]
    kept: Kept | None
    memory_mib: MemoryMib


class Confirm(Strict):
    rounds: Count
    of: Count
    prompts: Count
    rows: list[Confirmed]
    failed: str | None


class Recommendation(Strict):
    workload: Workload
    changes: dict[str, str]
    speed_up: SpeedUp | None
    reason: str


class Effort(Strict):
    trials: Count
    choosing_trials: Count
    undropped_trials: Count
    seconds: float
    choosing_seconds: float
    grid_settings: Count
    grid_trials: Count
    grid_seconds: float | None


class Summary(Head):
    workload: Workload
    headline: Literal["greedy", "sampled"]
    """how replies were drawn"""
    document: Document
    slots: Some
    current: str
    winner: str | None
    stages: list[Stage]
    confirm: Confirm | None
    recommendation: Recommendation
    effort: Effort
    energy: Energy | None
    failed: list[Failed]
    drift: Drift
    flags: Flags
    known_answer: list[KnownAnswer] | None
    cells_wrong: list[str] | None
    time: Time
