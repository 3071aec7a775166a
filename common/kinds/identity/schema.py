"""What summary.json of an identity run holds, and nothing else."""

from typing import Literal

from common.measure.summary import Count, EqualReplies, Kept, Strict, Time


class Arm(Strict):
    arm: str
    control: bool
    equal: Count
    of: Count
    near_ties: Count
    kept: Kept | None


class Difference(Strict):
    arm: str
    control: bool
    cell: str
    token: Count
    after: str
    text: str | None
    other_text: str | None
    gap: float | None
    gap_is_lower_bound: bool
    near_tie: bool | None


class Cell(Strict):
    cell: str
    prompt_tokens: Count
    tokens: Count


class Summary(Strict):
    schema: Literal[1]
    what: Literal["identity"]
    rig: str
    quick: bool
    complete: bool
    near_tie_nats: float
    arms: list[Arm]
    differences: list[Difference]
    cells: list[Cell]
    failed_attempts: Count
    known_answer: EqualReplies | None
    time: Time
