"""Load: the speed of a batch, and of the steady part of a closed loop."""

from collections.abc import Sequence
from dataclasses import dataclass

from common.measure.journal import Sample, Trial
from common.measure.rows import given, output_speed


@dataclass(frozen=True)
class Rates:
    """What a server gave per second."""

    output: float
    """output tokens"""
    total: float
    """tokens read and written"""
    requests: float


def speed(trial: Trial) -> float:
    """Output tokens per second: of a batch as everywhere; of a closed loop in its steady part, or
    to its end if it has none."""
    return rates(trial).output if trial.get("users") else output_speed(trial)


def waiting(trial: Trial) -> list[Sample]:
    """The requests whose waits are those of this load: of a closed loop no user's first, since all
    begin at once."""
    return trial["samples"][trial.get("users", 0) :]


def rates(trial: Trial) -> Rates:
    """Of a batch to the end of its last reply; of a closed loop in its steady part."""
    samples = trial["samples"]
    found = steady(samples, trial["users"]) if "users" in trial else None
    if found is not None:
        return found
    seconds = max(map(_end, samples)) / 1000
    total = sum(map(_read_and_written, samples)) / seconds
    return Rates(sum(map(_written, samples)) / seconds, total, len(samples) / seconds)


def steady(samples: Sequence[Sample], users: int) -> Rates | None:
    """While every user had a request under way, from the end of the first reply (when all had
    begun) to when the first user had nothing more to send; None if nobody sent a second request.

    A reply's tokens after the first are taken as evenly spread from its first to its last text, and
    its prompt as read when the first came.
    """
    ends = sorted(map(_end, samples))
    low = max(ends[0], *map(_sent, samples[:users]))
    high = ends[len(samples) - users]
    if high <= low:
        return None
    seconds = (high - low) / 1000
    written = sum(_between(sample, low, high) for sample in samples)
    read = sum(sample["prompt_n"] or 0 for sample in samples if low < _first(sample) <= high)
    ended = sum(low < _end(sample) <= high for sample in samples)
    return Rates(written / seconds, (read + written) / seconds, ended / seconds)


def _between(sample: Sample, low: float, high: float) -> float:
    """Tokens that came in a time, in ms after the first request was sent."""
    first = _first(sample)
    last = _sent(sample) + given(sample["last_text_ms"])
    tokens = _written(sample)
    if last <= first:
        return tokens if low < first <= high else 0
    inside = max(0.0, min(last, high) - max(first, low))
    return (low < first <= high) + (tokens - 1) * inside / (last - first)


def _sent(sample: Sample) -> float:
    return sample.get("sent_ms") or 0.0


def _first(sample: Sample) -> float:
    return _sent(sample) + given(sample["ttft_ms"])


def _end(sample: Sample) -> float:
    return _sent(sample) + given(sample["wall_ms"])


def _written(sample: Sample) -> int:
    return given(sample["predicted_n"])


def _read_and_written(sample: Sample) -> int:
    return (sample["prompt_n"] or 0) + _written(sample)
