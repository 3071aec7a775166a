"""Sections: parts of the compare page, the same in Markdown and in HTML."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from typing_extensions import TypedDict

from common.measure import page
from common.measure.quantities import Row


class File(TypedDict):
    name: str
    sha256: str


class Run(TypedDict):
    run: str
    rig: str
    what: str
    path: str
    started: str
    quick: bool
    hardware: str
    card: bool
    engine: str | None
    files: dict[str, File]
    prompts_sha256: str | None
    harness: str | None
    journal_sha256: str
    answer: str
    labels: list[str]


class Figure(Row):
    run: str
    rig: str
    what: str


class Over(TypedDict):
    """A ratio with its interval."""

    ratio: float | None
    low: float | None
    high: float | None


class Beside(TypedDict):
    """A measured figure beside a published one."""

    run: str
    arm: str
    value: float
    low: float | None
    high: float | None
    unit: str
    ratio: Over | None
    refused: list[str]
    labels: list[str]


class Quoted(TypedDict):
    """A published figure."""

    rig: str
    title: str
    what: str
    quantity: str
    arm: str | None
    place: str | None
    value: float | None
    range: list[float] | None
    interval: list[float] | None
    statement: str | None
    unit: str
    note: str | None
    source: str
    card: str
    words: str
    conditions: str
    beside: Beside | None


class Ratio(Over):
    quantity: str
    arm: str
    place: str
    refused: list[str]


class Pair(TypedDict):
    what: str
    first: str
    second: str
    between: str
    refused: list[str]
    labels: list[str]
    ratios: list[Ratio]


class Found(TypedDict):
    """What compare finds; compare-1.json says it to others."""

    schema: int
    what: str
    runs: list[Run]
    figures: list[Figure]
    published: list[Quoted]
    pairs: list[Pair]
    answer: list[str]


class Ends(TypedDict):
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Table:
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    title: str
    text: str
    tables: list[Table] = field(default_factory=list)


def short(name: str) -> str:
    """A run or rig without what they all share."""
    return name.removeprefix("local-llamacpp-")


def of(found: Found, *kinds: str) -> list[Run]:
    return [one for one in found["runs"] if one["what"] in kinds]


def figures(found: Found, run: Run, quantity: str) -> list[Figure]:
    return [
        row for row in found["figures"] if row["run"] == run["run"] and row["quantity"] == quantity
    ]


def at(rows: Iterable[Figure], arm: str, place: str = "") -> Figure | None:
    return next((row for row in rows if (row["arm"], row["place"]) == (arm, place)), None)


def value(row: Figure | None, digits: int) -> str:
    return page.number(row["value"], digits) if row else ""


def speed_up(row: Figure | None) -> str:
    """A speed-up with its interval."""
    return f"{row['value']:.3f}x ({bounds(row)})" if row else ""


def bounds(row: Ends) -> str:
    low, high = row["low"], row["high"]
    return "no interval" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def to_know(run: Run) -> str:
    return "; ".join(run["labels"])
