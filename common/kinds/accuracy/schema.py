"""What summary.json of an accuracy run holds, and nothing else."""

from typing import Annotated

from pydantic import Field
from typing_extensions import NotRequired

from common.measure.summary import (
    Count,
    Difference,
    Drift,
    EqualReplies,
    Head,
    Kept,
    Share,
    Some,
    SpeedUp,
    Strict,
    Time,
)

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
"""of a test, or of a score"""
Published = dict[Name, bool]
Ends = Annotated[list[Share], Field(min_length=2, max_length=2)]


class Score(Difference):
    score: Name
    right: Annotated[list[Count], Field(min_length=2, max_length=2)]
    finished_right: Annotated[list[Count], Field(min_length=2, max_length=2)]
    intervals: Annotated[list[Ends], Field(min_length=2, max_length=2)]
    p_value: Share
    detectable: float | None
    gained: list[str]
    lost: list[str]


class Counts(Strict):
    answered: NotRequired[Some]
    truncated: NotRequired[Some]
    empty: NotRequired[Some]
    refusal: NotRequired[Some]
    thinking_only: NotRequired[Some]
    invalid_tool_json: NotRequired[Some]
    several_calls: NotRequired[Some]
    call_as_text: NotRequired[Some]
    no_call: NotRequired[Some]
    failed: NotRequired[Some]


class Outcomes(Strict):
    arm: str
    counts: Counts


class OverParts(SpeedUp):
    questions: Some


class Work(Strict):
    arm: str
    tokens: Count
    seconds: float | None
    tokens_per_second: float | None
    kept: Kept | None
    time_ratio: float | None
    speed_up: OverParts | None


class Test(Strict):
    test: Name
    primary: Name
    questions: Some
    asked: Count
    scores: list[Score]
    equal_replies: EqualReplies
    control: EqualReplies | None
    outcomes: list[Outcomes]
    work: list[Work]


class Flags(Strict):
    replies: Count
    failed: Count
    throttled: Count | None
    clocks_disagree: Count


class KnownScore(Strict):
    test: Name
    score: Name
    arm: str
    expected: Count
    measured: Count
    equal: bool


class KnownAnswer(Strict):
    replies: EqualReplies
    scores: list[KnownScore]


class Summary(Head):
    limit: int | None
    parallel: Some
    arms: Annotated[list[str], Field(min_length=2, max_length=2)]
    published: Published
    tests: list[Test]
    drift: Drift
    flags: Flags
    known_answer: KnownAnswer | None
    time: Time
