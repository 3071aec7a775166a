"""Sections: parts of the compare page, the same in Markdown and in HTML."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.measure import page

Found = Mapping[str, Any]
Row = Mapping[str, Any]


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


def of(found: Found, *kinds: str) -> list[Row]:
    return [one for one in found["runs"] if one["what"] in kinds]


def figures(found: Found, run: Row, quantity: str) -> list[Row]:
    return [
        row for row in found["figures"] if row["run"] == run["run"] and row["quantity"] == quantity
    ]


def at(rows: Iterable[Row], arm: str, place: str = "") -> Row | None:
    return next((row for row in rows if (row["arm"], row["place"]) == (arm, place)), None)


def value(row: Row | None, digits: int) -> str:
    return page.number(row["value"], digits) if row else ""


def speed_up(row: Row | None) -> str:
    """A speed-up with its interval."""
    return f"{row['value']:.3f}x ({bounds(row)})" if row else ""


def bounds(row: Row) -> str:
    low, high = row["low"], row["high"]
    return "no interval" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def to_know(run: Row) -> str:
    return "; ".join(run["labels"])
