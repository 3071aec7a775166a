"""What is made of the samples of a cost run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from common.kinds.cost.schema import Arm, BreakEven, Summary
from common.measure import rows, stats
from common.measure.journal import Trial
from common.measure.log import Log
from common.measure.rows import BASELINE, significant


def summarise(folder: Path) -> Summary:
    """Every figure of a cost report, from the run directory alone."""
    log = Log(folder)
    greedy = log.main()
    arms = [_arm(log, name, greedy) for name in log.arms]
    lengths = sorted({arm["draft_length"] for arm in arms if arm["draft_length"]})
    return {
        **log.head(),
        "shape": log.manifest["plan"]["inputs"]["shape"],
        "arms": arms,
        "break_even": [_break_even(arms, length) for length in lengths],
        "drift": log.drift(),
        "flags": log.flags(),
        "time": log.time(),
    }


def _arm(log: Log, arm: str, greedy: list[Trial]) -> Arm:
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
        "step_cost": _step_cost(own, baseline) if rates else None,
        "memory_mib": log.memory(arm),
    }


def _step_cost(own: Sequence[Trial], baseline: dict[stats.Key, float]) -> float | None:
    """Time of one step (draft, and check them all) over the time of a token without drafter.

    A step gives its accepted tokens and one more, so a reply of N tokens, the first of which comes
    from the prompt, took N - 1 - accepted steps. What is accepted does not change a step's time, so
    this figure holds at any acceptance.
    """
    costs = []
    for trial in own:
        (sample,) = trial["samples"]
        undrafted = baseline.get((trial["cell"], trial["round"]))
        if undrafted is None:
            continue
        later = rows.given(sample["predicted_n"]) - 1
        per_step = later / (later - (sample["draft_n_accepted"] or 0))
        costs.append(per_step * undrafted / rows.decode_speed(trial))
    return significant(stats.geometric_mean(costs)) if costs else None


def _break_even(arms: Sequence[Arm], length: int) -> BreakEven:
    """The acceptance from which this draft length pays: between measured points, and by cost."""
    own = [
        (accept, up, arm["step_cost"])
        for arm in arms
        if arm["draft_length"] == length and (up := arm["speed_up"])
        if (accept := arm["accept"]) is not None
    ]
    # `crossing` looks for a fall to 1, so the acceptances go by their negatives.
    found = rows.crossing(sorted(((-accept, up) for accept, up, _ in own), key=lambda at: at[0]))
    at, low, high = (None if x is None else -x for x in (found["at"], found["high"], found["low"]))
    whys: dict[str | None, Literal["below", "above"] | None] = {"holds": "below", "never": "above"}
    costs = [step for _, _, step in own if step]
    cost = significant(stats.geometric_mean(costs)) if costs else None
    return {
        "draft_length": length,
        "at": at,
        "low": low,
        "high": high,
        "why": whys.get(found["why"]),
        "least": min((accept for accept, _, _ in own), default=None),
        "most": max((accept for accept, _, _ in own), default=None),
        "step_cost": cost,
        "by_cost": None if cost is None else significant(acceptance_for(cost, length)),
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
