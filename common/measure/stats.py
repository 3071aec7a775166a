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
FILLING = 200
"""passes over what is missing; each leaves at most the missing share of a round of the error"""
Verdict = Literal["pays", "even", "loses", "unknown"]
"""of a speed-up"""
Judgement = Literal["worse", "better", "none_shown", "not_a_test"]
"""of the answers of two arms"""


@dataclass(frozen=True)
class SpeedUp:
    """A ratio of speeds with its interval, which is None for fewer than 2 cells or 2 rounds."""

    ratio: float
    low: float | None
    high: float | None
    rounds: Mapping[str, float]
    """round -> ratio, the geometric mean over cells"""

    @property
    def round_spread(self) -> float | None:
        """Largest over smallest ratio of a round, minus 1; None for a single round."""
        found = self.rounds.values()
        return max(found) / min(found) - 1 if len(found) > 1 else None

    @property
    def verdict(self) -> Verdict:
        """pays or loses if the interval and every single round say so, else even; unknown without
        an interval."""
        if self.low is None or self.high is None:
            return "unknown"
        if self.low > 1 and min(self.rounds.values()) > 1:
            return "pays"
        if self.high < 1 and max(self.rounds.values()) < 1:
            return "loses"
        return "even"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def speed_up(baseline: Mapping[Key, float], arm: Mapping[Key, float], best_of: int = 1) -> SpeedUp:
    """Speed-up of `arm` over `baseline`, paired by cell and round; speeds in tokens per second.

    The ratio is the geometric mean over cells and rounds. Both are samples of what might have been
    measured, other prompts and other server starts, so the interval is that of a mean over two
    crossed random factors (see `_error`). Where no cell was asked in two rounds, as with questions
    asked once, each round is one observation: Student's t over rounds.

    `best_of`: of how many arms this one was picked for being the fastest. The interval is then so
    wide that the intervals of all of them hold at once (Bonferroni).

    Raises ValueError if the two have no cell and round in common.
    """
    logs = {key: math.log(arm[key] / baseline[key]) for key in baseline.keys() & arm.keys()}
    if not logs:
        raise ValueError("no cell and round was measured in both arms")
    cells = len({cell for cell, _ in logs})
    if cells == len(logs):
        turns = _means(logs, 1)
        error, degrees = _over_rounds(list(turns.values()))
    else:
        turns = _means(filled(logs), 1)
        error, degrees = _error(logs)
    center = statistics.fmean(turns.values())
    low = high = None
    if cells > 1 and len(turns) > 1:
        half = quantile_of(degrees, best_of) * math.sqrt(error)
        low, high = math.exp(center - half), math.exp(center + half)
    of_rounds = {turn: math.exp(value) for turn, value in turns.items()}
    return SpeedUp(math.exp(center), low, high, of_rounds)


def _over_rounds(means: Sequence[float]) -> tuple[float, float]:
    """The squared standard error of a mean over rounds and its degrees of freedom."""
    if len(means) < 2:
        return 0.0, 1.0
    return statistics.variance(means) / len(means), len(means) - 1.0


def _error(logs: Mapping[Key, float]) -> tuple[float, float]:
    """The squared standard error of the mean over cells and rounds, and its degrees of freedom.

    Value = mean + cell + round + rest, all three random: the variance between cells' means counts
    over cells, that between rounds' means over rounds, and what both hold of the rest is taken off
    once. Degrees of freedom by Satterthwaite (1946). It is never taken as less than that of
    either factor alone, which a chance of the rest would make it.
    """
    whole = filled(logs)
    by_cell, by_round = _means(whole, 0), _means(whole, 1)
    of_cells, cell_degrees = _over_rounds(list(by_cell.values()))
    of_rounds, round_degrees = _over_rounds(list(by_round.values()))
    free = cell_degrees * round_degrees - (len(whole) - len(logs))
    rest = 0.0
    if free > 0:
        center = statistics.fmean(whole.values())
        left = [value - by_cell[c] - by_round[t] + center for (c, t), value in whole.items()]
        rest = math.fsum(value**2 for value in left) / free / len(whole)
    error = of_cells + of_rounds - rest
    if error <= max(of_cells, of_rounds):
        return max((of_cells, cell_degrees), (of_rounds, round_degrees))
    parts = [(of_cells, cell_degrees), (of_rounds, round_degrees), (rest, max(free, 1))]
    return error, error**2 / math.fsum(part**2 / degrees for part, degrees in parts)


def filled(logs: Mapping[Key, float]) -> dict[Key, float]:
    """Every cell in every round: one that is missing becomes its cell's mean plus its round's
    less the whole mean, again and again until they agree (Yates 1933), so that a failed trial
    does not make its round look fast or slow."""
    cells, turns = {cell for cell, _ in logs}, {turn for _, turn in logs}
    missing = [(cell, turn) for cell in cells for turn in turns if (cell, turn) not in logs]
    whole = {**logs, **dict.fromkeys(missing, statistics.fmean(logs.values()))}
    for _ in range(FILLING if missing else 0):
        by_cell, by_round = _means(whole, 0), _means(whole, 1)
        center = statistics.fmean(whole.values())
        for cell, turn in missing:
            whole[cell, turn] = by_cell[cell] + by_round[turn] - center
    return dict(sorted(whole.items()))


@cache
def quantile_of(degrees: float, best_of: int = 1) -> float:
    """Student t's quantile for two-sided intervals, `best_of` of which hold with CONFIDENCE."""
    from scipy.special import stdtrit  # a fifth of a second, which only figures need

    return float(stdtrit(degrees, 1 - (1 - CONFIDENCE) / 2 / best_of))


def _means(logs: Mapping[Key, float], of: int) -> dict[str, float]:
    """The mean for each cell (of=0) or each round (of=1)."""
    found: dict[str, list[float]] = {}
    for key in sorted(logs):
        found.setdefault(key[of], []).append(logs[key])
    return {name: statistics.fmean(own) for name, own in found.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which so large a share of `values` lies; on a straight line between the two
    nearest (Hyndman and Fan's type 7, as NumPy has it)."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


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
