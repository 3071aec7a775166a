"""Rows: what a summary says of an arm or a place: speeds, speed-ups, kept, memory, equal text."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeVar, overload

from common.measure import stats
from common.measure.journal import Memory, Sample, Trial
from common.measure.summary import (
    ArmSpeed,
    Best,
    Cell,
    Crossing,
    EqualReplies,
    Gaps,
    Interval,
    Kept,
    MemoryMib,
    Percentiles,
    Reach,
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


def throttled(trials: Iterable[Trial]) -> int | None:
    """How many were taken under a throttle reason; None where the card did not say of all."""
    reasons = [trial["throttles"] for trial in trials]
    return None if None in reasons else sum(map(bool, reasons))


def decode_speed(trial: Trial) -> float:
    """The server's own decode speed of a trial's only request, tokens per second."""
    (sample,) = trial["samples"]
    return given(sample["predicted_per_second"])


def output_speed(trial: Trial) -> float:
    """All output tokens of a batch over the time from sending to the end of its last reply."""
    tokens = sum(given(sample["predicted_n"]) for sample in trial["samples"])
    return float(tokens * 1000 / max(given(sample["wall_ms"]) for sample in trial["samples"]))


def reply_speed(trial: Trial) -> float:
    """Output tokens of a trial's only request over all the time from sending to the end, reading
    and waiting included: what a user gets. Tokens per second."""
    (sample,) = trial["samples"]
    return given(sample["predicted_n"]) * 1000 / given(sample["wall_ms"])


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
    measured = values(trials, "ttft_ms")
    return significant(stats.geometric_mean(measured)) if measured else None


def values(
    trials: Sequence[Trial], name: Literal["ttft_ms", "content_ms", "wall_ms"]
) -> list[float]:
    """One figure of every reply that has it."""
    found = [sample.get(name) for trial in trials for sample in trial["samples"]]
    return [value for value in found if value is not None]


def percentiles(found: Sequence[float]) -> Percentiles | None:
    """Half, nine in ten and 99 in 100 are no larger; None without any."""
    if not found:
        return None
    return {
        "p50": significant(stats.percentile(found, 0.5)),
        "p90": significant(stats.percentile(found, 0.9)),
        "p99": significant(stats.percentile(found, 0.99)),
    }


def gaps(samples: Sequence[Sample]) -> Gaps | None:
    """Between chunks that carry text; None where the stream was not read closely."""
    found = [gap for sample in samples for gap in sample.get("gaps_ms") or []]
    if not found:
        return None
    return {
        "p50": significant(stats.percentile(found, 0.5)),
        "p99": significant(stats.percentile(found, 0.99)),
        "largest": significant(max(found)),
    }


def reading_speed(trials: Sequence[Trial]) -> float | None:
    """Prompt tokens read over the time it took, tokens per second; None where nothing was read."""
    samples = [sample for trial in trials for sample in trial["samples"]]
    took = math.fsum(sample["prompt_ms"] or 0 for sample in samples)
    read = sum(sample["prompt_n"] or 0 for sample in samples)
    return significant(read * 1000 / took) if took and read else None


def mean_speed(found: Mapping[stats.Key, float]) -> float | None:
    return significant(stats.geometric_mean(list(found.values()))) if found else None


def speed_up(
    baseline: Mapping[stats.Key, float], arm: Mapping[stats.Key, float], best_of: int = 1
) -> SpeedUp | None:
    """A speed-up for a summary; None if nothing can be paired."""
    if not baseline.keys() & arm.keys():
        return None
    return as_data(stats.speed_up(baseline, arm, best_of))


def as_data(up: stats.SpeedUp) -> SpeedUp:
    """A speed-up as a summary holds it."""
    return {
        "ratio": significant(up.ratio),
        "low": significant(up.low),
        "high": significant(up.high),
        "round_spread": significant(up.round_spread),
        "rounds": {turn: significant(ratio) for turn, ratio in up.rounds.items()},
        "verdict": up.verdict,
    }


def best(
    baseline: Mapping[stats.Key, float], arms: Mapping[str, Mapping[stats.Key, float]]
) -> Best | None:
    """The fastest of the arms; None if none can be paired.

    Its interval is wide enough for having picked it, so that one of several that are worth nothing
    is not said to pay by chance. That none pays, if each of them loses by itself, needs no such
    care: the interval is then the arm's own.
    """
    ups = {
        arm: stats.speed_up(baseline, own)
        for arm, own in arms.items()
        if baseline.keys() & own.keys()
    }
    if not ups:
        return None
    name = max(ups, key=lambda arm: ups[arm].ratio)
    up = ups[name]
    if any(one.verdict != "loses" for one in ups.values()):
        up = stats.speed_up(baseline, arms[name], len(ups))
    return {"arm": name, "of": len(ups), "speed_up": as_data(up)}


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
    """Cells that all of `arms` answered, and in how many their replies are equal in every round:
    a greedy reply that is asked for again says nothing new."""
    texts: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for trial in trials:
        place = texts.setdefault((trial["cell"], trial["round"]), {})
        place[trial["arm"]] = said(trial)
    alike: dict[str, bool] = {}
    for (cell, _), place in texts.items():
        if place.keys() >= set(arms):
            one = len({place[arm] for arm in arms}) == 1
            alike[cell] = alike.get(cell, True) and one
    return {"equal": sum(alike.values()), "of": len(alike)}


def equal_rounds(trials: Sequence[Trial], arm: str) -> EqualReplies:
    """Cells that an arm answered in several rounds, and in how many it said the same each time:
    the control."""
    texts: dict[str, list[tuple[str, str]]] = {}
    for trial in trials:
        if trial["arm"] == arm:
            texts.setdefault(trial["cell"], []).append(said(trial))
    several = [own for own in texts.values() if len(own) > 1]
    return {"equal": sum(len(set(own)) == 1 for own in several), "of": len(several)}


def said(trial: Trial) -> tuple[str, str]:
    """All that a trial's first reply says, reasoning and content."""
    sample = trial["samples"][0]
    return sample["reasoning"], sample["content"]


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
    A gain whose upper end stays above 1 is not known to be gone: it has no place, and `why` says
    unsure. Where the speed-up itself does not cross, `why` says holds or never.
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
    elif at is not None and high is None:
        found["at"], found["why"] = None, "unsure"
    return found


def reach(points: Sequence[tuple[float, Interval]]) -> Reach:
    """How far a gain reaches along x, from (x, speed-up) points."""
    verdicts = {up["verdict"] for _, up in points}
    return {
        **crossing(points),
        "pays_to": max((x for x, up in points if up["verdict"] == "pays"), default=None),
        "everywhere": verdicts.pop() if len(verdicts) == 1 else None,
    }


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
