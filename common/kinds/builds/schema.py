"""What summary.json of a builds run holds, and nothing else."""

from typing import Annotated, Literal

from pydantic import Field

from common.measure.summary import (
    Drift,
    Energy,
    EqualReplies,
    Flags,
    Head,
    Kept,
    KnownAnswer,
    MemoryMib,
    SpeedUp,
    Strict,
    Time,
)

Name = Literal["rig", "other"]


class Build(Strict):
    build: Name
    cuda_version: str | None
    flags: list[str]
    compiler: str | None
    server_sha256: str | None
    image: str | None


class Arm(Strict):
    arm: str
    build: Name
    drafter: str
    tokens_per_second: float | None
    speed_up: SpeedUp | None
    over_rig: SpeedUp | None
    ttft_ms: float | None
    kept: Kept | None
    memory_mib: MemoryMib
    equal_rig: EqualReplies | None


class Cell(Strict):
    cell: str
    drafter: str
    rig: float | None
    other: float | None
    over_rig: float | None


class Summary(Head):
    builds: Annotated[list[Build], Field(min_length=2, max_length=2)]
    arms: list[Arm]
    cells: list[Cell]
    energy: Energy | None
    drift: Drift
    flags: Flags
    known_answer: list[KnownAnswer] | None
    time: Time
