"""Summary: what the summaries of several measurements are made of. None is absent."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

Count = Annotated[int, Field(ge=0)]
Some = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]


class Strict(TypedDict):
    """A shape that knows all its keys."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]


class SpeedUp(Strict):
    ratio: Positive
    low: float | None
    high: float | None
    round_spread: float | None
    verdict: Literal["pays", "even", "loses", "unknown"]


class Kept(Strict):
    accepted: Count
    drafted: Some
    share: Share
    drafts: Count
    accepted_per_pos: list[Count]


class MemoryMib(Strict):
    process_ready: float | None
    process_peak: float | None
    card_ready: float | None
    card_peak: float | None


class Cell(Strict):
    arm: str
    tokens_per_second: float | None
    speed_up: float | None
    kept: Kept | None
    cell: str


class Drift(Strict):
    arm: str
    change: float | None


class Flags(Strict):
    samples: Count
    throttled: Count
    clocks_disagree: Count
    ended_early: Count
    failed_attempts: Count


class KnownAnswer(Strict):
    arm: str
    expected: Kept
    measured: Kept | None
    equal: bool


class Time(Strict):
    server_start_s: float | None
    requests_s: float | None
    cool_down_s: float | None
    wall_s: float | None


class Pause(Strict):
    round: str
    arm: str
    after: str
    before: str
    seconds: Positive
    starts: Some


class Infeasible(Strict):
    cell: str
    reason: str


class Failed(Strict):
    round: str
    arm: str
    cell: str
    reason: str


class EqualReplies(Strict):
    equal: Count
    of: Count
