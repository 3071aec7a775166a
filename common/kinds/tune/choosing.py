"""Tune, choosing: which settings are left out after a look, and which of the rest is taken.

Each look has its own prompts and its own start of every server. What is decided here need not be
sure: a wrong drop can cost the best setting, but what is recommended is decided by the confirmation
alone. So the interval used here is over prompts, which one look has several of; it does not hold
what a server's start adds, for which looks are too few. docs/METHOD.md says what that costs.
"""

import math
import statistics
from collections.abc import Iterator, Mapping

from common.measure import stats

# Two settings that differ by less are taken as equally good; a change must be worth as much.
WORTH = 1.01
Speeds = Mapping[stats.Key, float]
"""cell and round -> tokens per second"""


def over_prompts(baseline: Speeds, arm: Speeds) -> stats.SpeedUp:
    """Speed-up of `arm` over `baseline` with its interval over prompts, each asked in one look."""
    return stats.speed_up(_each_alone(baseline), _each_alone(arm))


def _each_alone(speeds: Speeds) -> dict[stats.Key, float]:
    """Every prompt as an observation of its own, whichever look it was in."""
    return {(cell, cell): speed for (cell, _look), speed in speeds.items()}


def ruled_out(speeds: Mapping[str, Speeds], unchanged: str) -> Iterator[tuple[str, str]]:
    """Arms that hardly can be the best, or hardly be worth a change, with the reason.

    `speeds` are those of the arms left, in the looks so far; `unchanged` is the best before them.
    """
    leader = max(speeds, key=lambda name: _mean(speeds[name]))
    for name, own in speeds.items():
        up = over_prompts(speeds[leader], own)
        limit = 1 / WORTH if name == unchanged else 1
        if name != leader and up.high is not None and up.high < limit:
            yield name, f"{words(up)} the speed of {leader}"
        elif unchanged in speeds and name != unchanged:
            up = over_prompts(speeds[unchanged], own)
            if up.high is not None and up.high < WORTH:
                yield name, f"{words(up)} the speed of {unchanged}: not worth a change"


def best(speeds: Mapping[str, Speeds], unchanged: str) -> str:
    """The fastest of those left. While not to change is still a choice: only if one of them is
    worth a change by its mean and its interval lies above what is unchanged."""
    leader = max(speeds, key=lambda name: _mean(speeds[name]))
    if unchanged not in speeds:
        return leader
    ups = [over_prompts(speeds[unchanged], speeds[name]) for name in speeds if name != unchanged]
    worth = any(up.ratio >= WORTH and up.low is not None and up.low > 1 for up in ups)
    return leader if worth else unchanged


def words(up: stats.SpeedUp) -> str:
    return f"{up.ratio:.3f}x ({up.low:.3f} to {up.high:.3f})"


def _mean(speeds: Speeds) -> float:
    """Mean of the logarithms."""
    return statistics.fmean(math.log(speed) for speed in speeds.values())
