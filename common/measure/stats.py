"""Statistics: speed-ups with their intervals, verdicts, drift. docs/METHOD.md explains them.

A speed-up goes from here to rows.py (as a summary holds it), quantities.py (as compare has it) and
sections.py (in words).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal

CONFIDENCE = 0.95
"""of every interval; what texts call it is page.LEVEL"""
Key = tuple[str, str]
"""cell, round"""
Verdict = Literal["pays", "even", "loses", "unknown"]


@dataclass(frozen=True)
class SpeedUp:
    """A ratio of speeds with its 95% interval; the interval is None for fewer than 2 cells."""

    ratio: float
    low: float | None
    high: float | None
    round_spread: float | None
    """largest over smallest per-round ratio, minus 1; None for a single round"""

    @property
    def verdict(self) -> Verdict:
        """pays, loses or even; unknown without an interval."""
        if self.low is None or self.high is None:
            return "unknown"
        if self.low > 1:
            return "pays"
        return "loses" if self.high < 1 else "even"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def speed_up(baseline: Mapping[Key, float], arm: Mapping[Key, float]) -> SpeedUp:
    """Speed-up of `arm` over `baseline`, paired by cell and round; speeds in tokens per second.

    Per cell the log ratios are averaged over rounds; the headline is the geometric mean over
    cells, the interval Student's t on the cell means with cells - 1 degrees of freedom. Cells are
    the unit: more rounds sharpen each cell, only more cells narrow what is said of others.

    Raises ValueError if the two have no cell and round in common.
    """
    shared = sorted(baseline.keys() & arm.keys())
    if not shared:
        raise ValueError("no cell and round was measured in both arms")
    logs = [math.log(arm[key] / baseline[key]) for key in shared]
    means = _means([cell for cell, _ in shared], logs)
    center = statistics.fmean(means)
    low = high = None
    if len(means) > 1:
        quantile = quantile_of(len(means) - 1)
        squares = math.fsum((mean - center) ** 2 for mean in means)
        half = quantile * math.sqrt(squares / (len(means) - 1) / len(means))
        low, high = math.exp(center - half), math.exp(center + half)
    of_rounds = _means([turn for _, turn in shared], logs)
    spread = math.exp(max(of_rounds) - min(of_rounds)) - 1 if len(of_rounds) > 1 else None
    return SpeedUp(math.exp(center), low, high, spread)


@cache
def quantile_of(degrees: int) -> float:
    """Student t's quantile for a two-sided interval of CONFIDENCE."""
    from scipy.special import stdtrit  # a fifth of a second, which only figures need

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def _means(groups: Sequence[str], values: Sequence[float]) -> list[float]:
    """The mean of the values of each group."""
    found: dict[str, list[float]] = {}
    for group, value in zip(groups, values, strict=True):
        found.setdefault(group, []).append(value)
    return [statistics.fmean(own) for own in found.values()]


def drift(first: Mapping[str, float], repeat: Mapping[str, float]) -> float | None:
    """How far the first arm moved when repeated at the end: geometric mean ratio over cells - 1.

    None if no cell was measured both times.
    """
    cells = sorted(first.keys() & repeat.keys())
    if not cells:
        return None
    return geometric_mean([repeat[cell] / first[cell] for cell in cells]) - 1


def crossing(curve: Sequence[tuple[float, float]]) -> float | None:
    """The first x at which a ratio falls to 1, between points (x ascending, ratio).

    The logarithm of the ratio is taken as straight between neighbours. None if it never falls
    from above 1 to 1 or less.
    """
    for (x0, y0), (x1, y1) in pairwise(curve):
        if y0 > 1 >= y1:
            share = math.log(y0) / (math.log(y0) - math.log(y1))
            return x0 + share * (x1 - x0)
    return None
