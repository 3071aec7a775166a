"""What summary.json of a sweep or longmixed run holds, and nothing else."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import NotRequired

from common.measure.summary import (
    Count,
    Crossing,
    Drift,
    Energy,
    Failed,
    Flags,
    Head,
    Infeasible,
    Kept,
    KnownAnswer,
    MemoryMib,
    SpeedUp,
    Strict,
    Time,
)


class Document(Strict):
    document: NotRequired[str]
    document_sha256: NotRequired[str]


Layout = Literal["per-slot", "shared"]


class Percentiles(Strict):
    p50: float | None
    p90: float | None
    p99: float | None


class Measured(Strict):
    arm: str
    tokens_per_second: float | None
    repeats_spread: float | None
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    busy_slots: float | None
    kept: Kept | None
    memory_mib: MemoryMib
    trials: Count


class Row(Measured):
    kind: str
    shape: str
    at_once: Count


# Both layouts, each with its speed-up.
Drafter = Annotated[dict[Layout, SpeedUp | None], Field(min_length=2, max_length=2)]


class Sharing(Strict):
    none: SpeedUp | None
    drafter: SpeedUp | None


class Ratio(Strict):
    kind: str
    at_once: Count
    drafter: Drafter
    sharing: Sharing


class Turn(Crossing):
    kind: str
    layout: str
    pays_to: float | None
    most: float | None


class Summary(Head):
    document: Document
    rows: list[Row]
    ratios: list[Ratio]
    turns: list[Turn]
    energy: Energy | None
    infeasible: list[Infeasible]
    failed: list[Failed]
    cells_wrong: list[str] | None
    drift: Drift
    flags: Flags
    known_answer: list[KnownAnswer] | None
    time: Time
