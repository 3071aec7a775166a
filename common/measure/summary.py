"""Summary: what the summaries of several measurements are made of. None is absent."""

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from common.errors import RigError
from common.host.energy import Source
from common.measure.stats import Judgement, Verdict

Count = Annotated[int, Field(ge=0)]
Some = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]


@with_config(extra="forbid")
class Strict(TypedDict):
    """A shape that knows all its keys."""


def hold(found: object, known: Any) -> None:
    """Hold what was read or made to a type. Raises RigError that says where it differs."""
    try:
        _adapter(known).validate_python(found, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(map(str, first["loc"])) or "the whole of it"
        raise RigError(f"{where} is not as its schema says: {first['msg'][:200]}") from None


@cache
def _adapter(known: Any) -> TypeAdapter[Any]:
    """Made once: it takes longer than holding something to it."""
    return TypeAdapter(known)


class Pause(Strict):
    """A wait between two trials that is longer than it should be."""

    round: str
    arm: str
    after: str
    before: str
    seconds: Positive
    starts: Some
    """how often its server was started in that round"""


class Head(Strict):
    """How the summary of every rig's run begins; its version is Kind's to say."""

    what: str
    rig: str
    quick: bool
    complete: bool
    repetition: Share | None
    """how much of the replies that the answer is made from they had said before"""
    launch: str | None
    """a command line of the last arm, with the names of files only; None if none was started"""
    pauses: list[Pause]


class Interval(Strict):
    ratio: Positive
    low: float | None
    high: float | None
    verdict: Verdict


class SpeedUp(Interval):
    round_spread: float | None
    rounds: dict[str, Positive]
    """round -> ratio"""


class Best(Strict):
    """The fastest of several arms."""

    arm: str
    of: Some
    """arms it was picked from"""
    speed_up: SpeedUp
    """with an interval that is wide enough for having picked"""


class Kept(Strict):
    accepted: Count
    drafted: Some
    share: Share
    drafts: Count
    accepted_per_pos: list[Count]


class ArmSpeed(Strict):
    arm: str
    tokens_per_second: float | None
    speed_up: SpeedUp | None
    kept: Kept | None


class Percentiles(Strict):
    p50: float
    p90: float
    p99: float


class Gaps(Strict):
    """Between a chunk that carries text and the next, in ms."""

    p50: float
    p99: float
    largest: float


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


class Crossing(Strict):
    """Where a gain is gone."""

    at: float | None
    low: float | None
    high: float | None
    why: Literal[None, "holds", "never", "unsure"]


class Reach(Crossing):
    """How far a gain reaches, in words of verdicts as well."""

    pays_to: float | None
    """the last x at which it pays; None if it does so nowhere"""
    everywhere: Verdict | None
    """the verdict at every x; None if they differ, or nothing was measured"""


class Difference(Strict):
    """Of two shares, with what may be said of it."""

    verdict: Judgement

    difference: Annotated[float, Field(ge=-1, le=1)]
    low: Annotated[float, Field(ge=-1, le=1)]
    high: Annotated[float, Field(ge=-1, le=1)]


class Drift(Strict):
    arm: str
    change: float | None
    """repeated at the end over the first time, minus 1"""
    range: float | None
    """its fastest over its slowest round, minus 1"""


class Flags(Strict):
    samples: Count
    throttled: Count | None
    """None: the card does not say"""
    clocks_disagree: Count
    counts_disagree: Count
    """replies whose usage has another number of output tokens than their timings"""
    ended_early: Count
    failed_attempts: Count


class KnownAnswer(Strict):
    arm: str
    expected: Kept
    measured: Kept | None
    equal: bool


class Time(Strict):
    server_start_s: float
    requests_s: float
    cool_down_s: float
    wall_s: float | None


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


class EnergyRatio(Strict):
    """Of joules per output token; below 1 is less."""

    ratio: Positive
    low: float | None
    high: float | None


class ArmEnergy(Strict):
    place: str
    arm: str
    joules_per_token: Positive | None
    over: str | None
    """the arm that `ratio` is over"""
    ratio: EnergyRatio | None
    measured: Count
    """trials whose energy is known"""
    of: Count


class Energy(Strict):
    source: Source
    arms: list[ArmEnergy]
