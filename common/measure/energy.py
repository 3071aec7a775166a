"""Energy: joules per output token of each arm, from the journal to the report and to compare."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from common.host.energy import Source
from common.measure import page, rows, stats
from common.measure.journal import Trial
from common.measure.log import Log
from common.measure.quantities import Row, figure
from common.measure.summary import ArmEnergy, Energy, EnergyRatio

WHOSE: Mapping[Source, str] = {
    "NVML energy counter": "the card's own counter, so of the card alone",
    "NVML power x time": "the card's power, read five times a second, times time, so of the card "
    "alone",
    "RAPL package": "the counters of the CPU packages, so of all that the host does meanwhile, "
    "without memory and the rest of it",
}


class Group(NamedTuple):
    """Trials whose arms are set side by side: of one batch size, of one lever."""

    place: str
    trials: Sequence[Trial]
    over: Mapping[str, str | None]
    """arm -> the arm that its energy is divided by"""


def summarised(log: Log, groups: Sequence[Group]) -> Energy | None:
    """Energy per output token of every group's arms; None where none was measured."""
    source = log.manifest.get("energy")
    arms = [_arm(group, arm, over) for group in groups for arm, over in group.over.items()]
    if source is None or all(arm["joules_per_token"] is None for arm in arms):
        return None
    return {"source": source, "arms": arms}


def _arm(group: Group, arm: str, over: str | None) -> ArmEnergy:
    own = [trial for trial in group.trials if trial["arm"] == arm]
    known = [(joules, _tokens(trial)) for trial in own if (joules := trial.get("energy_j"))]
    tokens = sum(count for _, count in known)
    return {
        "place": group.place,
        "arm": arm,
        "joules_per_token": rows.significant(math.fsum(joules for joules, _ in known) / tokens)
        if tokens
        else None,
        "over": over,
        "ratio": _ratio(group.trials, over, arm) if over else None,
        "measured": len(known),
        "of": len(own),
    }


def _tokens(trial: Trial) -> int:
    return sum(rows.given(sample["predicted_n"]) for sample in trial["samples"])


def _ratio(trials: Sequence[Trial], base: str, arm: str) -> EnergyRatio | None:
    """Paired by cell and round, as speed-ups are."""
    found, own = (_per_token(trials, name) for name in (base, arm))
    if not found.keys() & own.keys():
        return None
    ratio = stats.speed_up(found, own)
    return {
        "ratio": rows.significant(ratio.ratio),
        "low": rows.significant(ratio.low),
        "high": rows.significant(ratio.high),
    }


def _per_token(trials: Sequence[Trial], arm: str) -> dict[stats.Key, float]:
    return {
        (trial["cell"], trial["round"]): joules / tokens
        for trial in trials
        if trial["arm"] == arm and (joules := trial.get("energy_j")) and (tokens := _tokens(trial))
    }


def told(found: Energy | None) -> list[str]:
    """The part of a report; nothing where no energy was measured."""
    if found is None:
        return []
    placed = any(arm["place"] for arm in found["arms"])
    lines = [
        [
            *([arm["place"]] if placed else []),
            arm["arm"],
            page.number(arm["joules_per_token"], 3),
            arm["over"] or "",
            f"{arm['ratio']['ratio']:.3f}" if arm["ratio"] else "",
            _interval(arm["ratio"]),
            f"{arm['measured']} of {arm['of']}",
        ]
        for arm in found["arms"]
    ]
    head = ["arm", "J/token", "over", "ratio", page.LEVEL, "trials measured"]
    text = (
        "Joules per output token: all energy over all output tokens, from sending to the end of "
        f"the last reply, so reading the prompt and the idle draw count. By {found['source']}: "
        f"{WHOSE[found['source']]}. *Ratio* is of energy per token, below 1 for less of it, paired "
        "by cell and round as speed-ups are."
    )
    return ["## Energy", page.table([*(["of"] if placed else []), *head], lines), text]


def _interval(ratio: EnergyRatio | None) -> str:
    if ratio is None or ratio["low"] is None:
        return "" if ratio is None else "no interval"
    return f"{ratio['low']:.3f} to {ratio['high']:.3f}"


def not_measured(found: Energy | None) -> str:
    """A sentence to add to what was not measured; nothing where energy was."""
    return " Energy: no counter of it was read." if found is None else ""


def figures(found: Energy | None) -> Iterator[Row | None]:
    """Its rows for compare."""
    if found is None:
        return
    for arm in found["arms"]:
        name, place, ratio = arm["arm"], arm["place"], arm["ratio"]
        value, source = arm["joules_per_token"], found["source"]
        yield figure("energy_per_token", "J/token", name, value, place, note=source)
        if ratio:
            over = f"over {arm['over']}"
            low, high = ratio["low"], ratio["high"]
            yield figure(
                "energy_ratio", "x", name, ratio["ratio"], place, low=low, high=high, note=over
            )
