"""Rows: what a summary says of an arm or a place: speeds, speed-ups, kept, memory, equal text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar, overload

from common.measure import stats
from common.measure.journal import Memory, Trial
from common.measure.summary import (
    ArmSpeed,
    Cell,
    Crossing,
    EqualReplies,
    Interval,
    Kept,
    MemoryMib,
    SpeedUp,
)

BASELINE = "none"
Speed = Callable[[Trial], float]
T = TypeVar("T")


def given(value: T | None) -> T:
    """A figure that only something that failed lacks. Raises TypeError if it is lacking."""
    if value is None:
        raise TypeError("a figure is missing")
    return value


def decode_speed(trial: Trial) -> float:
    """The server's own decode speed of a trial's only request, tokens per second."""
    (sample,) = trial["samples"]
    return given(sample["predicted_per_second"])


def output_speed(trial: Trial) -> float:
    """All output tokens of a batch over the time from sending to the end of its last reply."""
    tokens = sum(given(sample["predicted_n"]) for sample in trial["samples"])
    return float(tokens * 1000 / max(given(sample["wall_ms"]) for sample in trial["samples"]))


def speeds(
    trials: Sequence[Trial], arm: str | None = None, speed: Speed = decode_speed
) -> dict[stats.Key, float]:
    """Cell and round -> tokens per second, of one arm or of trials that are one arm's."""
    return {
        (trial["cell"], trial["round"]): speed(trial)
        for trial in trials
        if arm is None or trial["arm"] == arm
    }


def ttft(trials: Sequence[Trial]) -> float | None:
    """Geometric mean of the times to first token in ms, of trials of one request each."""
    found = [trial["samples"][0]["ttft_ms"] for trial in trials]
    measured = [value for value in found if value is not None]
    return significant(stats.geometric_mean(measured)) if measured else None


def mean_speed(found: Mapping[stats.Key, float]) -> float | None:
    return significant(stats.geometric_mean(list(found.values()))) if found else None


def speed_up(baseline: Mapping[stats.Key, float], arm: Mapping[stats.Key, float]) -> SpeedUp | None:
    """A speed-up for a summary; None if nothing can be paired."""
    if not baseline.keys() & arm.keys():
        return None
    up = stats.speed_up(baseline, arm)
    return {
        "ratio": significant(up.ratio),
        "low": significant(up.low),
        "high": significant(up.high),
        "round_spread": significant(up.round_spread),
        "verdict": up.verdict,
    }


def kept(trials: Sequence[Trial]) -> Kept | None:
    """Accepted and drafted tokens, in all and per position; None if nothing was drafted."""
    samples = [sample for trial in trials for sample in trial["samples"]]
    drafted = sum(sample["draft_n"] or 0 for sample in samples)
    if not drafted:
        return None
    accepted = sum(sample["draft_n_accepted"] or 0 for sample in samples)
    counts = [given(trial["counters"]) for trial in trials]
    per_pos = [0] * max(len(count["accepted_per_pos"]) for count in counts)
    for count in counts:
        for position, number in enumerate(count["accepted_per_pos"]):
            per_pos[position] += number
    return {
        "accepted": accepted,
        "drafted": drafted,
        "share": significant(accepted / drafted),
        "drafts": sum(count["drafts"] for count in counts),
        "accepted_per_pos": per_pos,
    }


def equal_replies(trials: Sequence[Trial], arms: Sequence[str]) -> EqualReplies:
    """Cells and rounds that all of `arms` answered, and in how many their replies are equal."""
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for trial in trials:
        place = texts.setdefault((trial["cell"], trial["round"]), {})
        place[trial["arm"]] = trial["samples"][0]["content"]
    sets = [{place[arm] for arm in arms} for place in texts.values() if place.keys() >= set(arms)]
    return {"equal": sum(len(replies) == 1 for replies in sets), "of": len(sets)}


def memory(trials: Sequence[Trial], ready: Sequence[Memory] = ()) -> MemoryMib:
    """Largest memory in MiB, at ready and in the trials; None where it was not measured."""
    during = [trial["memory_mib"] for trial in trials if trial["memory_mib"]]
    return {
        "process_ready": largest([found["process"] for found in ready]),
        "process_peak": largest([found["process_peak"] for found in during]),
        "card_ready": largest([found["card"] for found in ready]),
        "card_peak": largest([found["card"] for found in during]),
    }


def crossing(points: Sequence[tuple[float, Interval]]) -> Crossing:
    """Where a gain is gone along x (a depth, a number of requests), from (x, speed-up) points.

    `low` and `high` are where the ends of the 95% intervals cross 1; None if they do not.
    `why` says holds or never where the speed-up itself does not cross.
    """
    at = stats.crossing([(x, up["ratio"]) for x, up in points])
    low = stats.crossing([(x, low) for x, up in points if (low := up["low"]) is not None])
    high = stats.crossing([(x, high) for x, up in points if (high := up["high"]) is not None])
    found: Crossing = {
        "at": significant(at),
        "low": significant(low),
        "high": significant(high),
        "why": None,
    }
    if at is None and points:
        found["why"] = "never" if points[0][1]["ratio"] <= 1 else "holds"
    return found


def pays_to(points: Sequence[tuple[float, Interval]]) -> float | None:
    """The last x at which the whole 95% interval lies above 1; None if it does so nowhere."""
    return max((x for x, up in points if up["low"] is not None and up["low"] > 1), default=None)


def largest(values: Sequence[float | None]) -> float | None:
    return significant(max((value for value in values if value is not None), default=None))


@overload
def significant(value: float) -> float: ...
@overload
def significant(value: None) -> None: ...
def significant(value: float | None) -> float | None:
    """Six significant digits: enough to read, few enough to be the same on every machine."""
    return None if value is None else float(f"{value:.6g}")


def arm_speed(arm: str, trials: list[Trial]) -> ArmSpeed:
    """Speed, speed-up and kept of one arm over some trials; absent values are None."""
    own, up = speeds(trials, arm), None
    if arm != BASELINE:
        up = speed_up(speeds(trials, BASELINE), own)
    return {
        "arm": arm,
        "tokens_per_second": mean_speed(own),
        "speed_up": up,
        "kept": kept([trial for trial in trials if trial["arm"] == arm]),
    }


def cell_rows(cells: Iterable[str], arms: Sequence[str], greedy: list[Trial]) -> list[Cell]:
    """Speed, speed-up and kept of every arm at every prompt."""
    rows: list[Cell] = []
    for cell in cells:
        own = [trial for trial in greedy if trial["cell"] == cell]
        for arm in arms:
            speed = arm_speed(arm, own)
            up = speed["speed_up"]
            rows.append({**speed, "cell": cell, "speed_up": up["ratio"] if up else None})
    return rows
