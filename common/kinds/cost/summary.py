"""What is made of the samples of a cost run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from common.kinds.cost.schema import Acceptance, Arm, BetweenPoints, ByCost, Summary, Times
from common.measure import rows, stats
from common.measure.journal import Trial
from common.measure.log import Log
from common.measure.rows import BASELINE, significant
from common.measure.summary import Interval

Costs = dict[stats.Key, float]
"""cell and round -> step cost"""


def summarise(folder: Path) -> Summary:
    """Every figure of a cost report, from the run directory alone."""
    log = Log(folder)
    greedy = log.main()
    costs = {name: _step_costs(greedy, name) for name in log.arms if name != BASELINE}
    arms = [_arm(log, name, greedy, costs.get(name, {})) for name in log.arms]
    steps = {
        length: _together([costs[arm["arm"]] for arm in arms if arm["draft_length"] == length])
        for length in sorted({arm["draft_length"] for arm in arms if arm["draft_length"]})
    }
    return {
        **log.head(),
        "repetition": None,  # of random weights it says nothing
        "shape": log.manifest["plan"]["inputs"]["shape"],
        "arms": arms,
        "break_even": [
            {**_break_even(arms, length), **_by_cost(steps, length)} for length in steps
        ],
        "drift": log.drift(),
        "flags": log.flags(),
        "time": log.time(),
    }


def _arm(log: Log, arm: str, greedy: list[Trial], costs: Costs) -> Arm:
    changes = log.manifest["plan"]["arms"][arm]
    rates = [float(part) for part in changes.get("SPEC_SYNTH_RATES", "").split(",") if part]
    own = [trial for trial in greedy if trial["arm"] == arm]
    speeds, baseline = rows.speeds(own), rows.speeds(greedy, BASELINE)
    return {
        "arm": arm,
        "draft_length": len(rates) or None,
        "accept": rates[0] if rates else None,
        "tokens_per_second": rows.mean_speed(speeds),
        "speed_up": rows.speed_up(baseline, speeds) if rates else None,
        "kept": rows.kept(own),
        "kept_set": significant(sum(rates) / len(rates)) if rates else None,
        "step_cost": significant(stats.geometric_mean(list(costs.values()))) if costs else None,
        "memory_mib": log.memory(arm),
    }


def _step_costs(greedy: Sequence[Trial], arm: str) -> Costs:
    """Time of one step (draft, and check them all) over the time of a token without drafter.

    A step gives its accepted tokens and one more, so a reply of N tokens, the first of which comes
    from the prompt, took N - 1 - accepted steps. What is accepted does not change a step's time, so
    this figure holds at any acceptance.
    """
    baseline = rows.speeds(greedy, BASELINE)
    costs = {}
    for trial in greedy:
        key = trial["cell"], trial["round"]
        if trial["arm"] != arm or key not in baseline:
            continue
        (sample,) = trial["samples"]
        later = rows.given(sample["predicted_n"]) - 1
        per_step = later / (later - (sample["draft_n_accepted"] or 0))
        costs[key] = per_step * baseline[key] / rows.decode_speed(trial)
    return costs


def _together(found: Sequence[Costs]) -> Costs:
    """The step costs of one draft length: at each cell and round the mean over acceptances."""
    keys = {key for costs in found for key in costs}
    return {
        key: stats.geometric_mean([costs[key] for costs in found if key in costs])
        for key in sorted(keys)
    }


def _break_even(arms: Sequence[Arm], length: int) -> BetweenPoints:
    """The acceptance at which this draft length breaks even, read off between measured points."""
    points = sorted(
        (
            (accept, up)
            for arm in arms
            if arm["draft_length"] == length and (up := arm["speed_up"])
            if (accept := arm["accept"]) is not None
        ),
        key=lambda point: point[0],
    )
    faster = [up["ratio"] > 1 for _, up in points]
    why: Literal[None, "below", "above", "mixed"] = None
    if faster != sorted(faster):
        why = "mixed"
    elif len(set(faster)) == 1:
        why = "below" if faster[0] else "above"
    crosses = why is None
    return {
        "draft_length": length,
        "at": _where(points, "ratio") if crosses else None,
        "low": _where(points, "high") if crosses else None,
        "high": _where(points, "low") if crosses else None,
        "why": why,
        "sure": {up["verdict"] for _, up in points} in ({"pays"}, {"loses"}),
        "least": min((accept for accept, _ in points), default=None),
        "most": max((accept for accept, _ in points), default=None),
    }


def _where(
    points: Sequence[tuple[float, Interval]], curve: Literal["ratio", "low", "high"]
) -> float | None:
    """The acceptance at which a speed-up, or an end of its interval, rises above 1."""
    # `crossing` looks for a fall to 1, so the acceptances go by their negatives.
    found = stats.crossing(
        [(-accept, at) for accept, up in reversed(points) if (at := up[curve]) is not None]
    )
    return None if found is None else significant(-found)


def _by_cost(steps: Mapping[int, Costs], length: int) -> ByCost:
    """What a step costs, the acceptance that follows from it, and what it costs over a step of the
    next shorter draft that was measured. The ends of intervals go through the same formula: a
    dearer step always takes a higher acceptance."""
    own = steps[length]
    shorter = max((other for other in steps if other < length), default=None)
    cost = _interval(dict.fromkeys(own, 1.0), own)
    over = None if shorter is None else _interval(steps[shorter], own)
    return {
        "step_cost": cost,
        "by_cost": _accepted(cost, length) if cost else None,
        "shorter": shorter,
        "over_shorter": over,
    }


def _accepted(cost: Times, length: int) -> Acceptance:
    value, low, high = (
        None if dear is None else significant(acceptance_for(dear, length))
        for dear in (cost["value"], cost["low"], cost["high"])
    )
    return {"value": value, "low": low, "high": high}


def _interval(below: Costs, above: Costs) -> Times | None:
    """A ratio of step costs with its interval; None if nothing can be paired."""
    if not below.keys() & above.keys():
        return None
    found = stats.speed_up(below, above)
    return {
        "value": significant(found.ratio),
        "low": significant(found.low),
        "high": significant(found.high),
    }


def acceptance_for(cost: float, length: int) -> float | None:
    """The acceptance p at which a step of `length` drafts that costs `cost` tokens breaks even.

    1 + p + p**2 + ... + p**length tokens come out of a step on average. 0 if it pays even when
    nothing is accepted, None if it does not pay when everything is.
    """
    if cost <= 1:
        return 0.0
    if cost > length + 1:
        return None
    from scipy.optimize import brentq  # a start need not pay for it

    def lacking(p: float) -> float:
        return sum(p**position for position in range(length + 1)) - cost

    return float(brentq(lacking, 0, 1))
