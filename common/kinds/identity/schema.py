"""What summary.json of an identity run holds, and nothing else."""

from common.measure.summary import Count, EqualReplies, Head, Kept, Strict, Time


class Arm(Strict):
    arm: str
    control: bool
    equal: Count
    of: Count
    near_ties: Count
    kept: Kept | None


class Parting(Strict):
    """Where two replies part."""

    token: Count
    after: str
    text: str | None
    other_text: str | None
    gap: float | None
    gap_is_lower_bound: bool
    near_tie: bool | None


class Difference(Parting):
    arm: str
    control: bool
    cell: str


class Cell(Strict):
    cell: str
    prompt_tokens: Count
    tokens: Count


class Summary(Head):
    near_tie_nats: float
    arms: list[Arm]
    differences: list[Difference]
    cells: list[Cell]
    failed_attempts: Count
    known_answer: EqualReplies | None
    time: Time
