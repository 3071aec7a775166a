"""What is made of the samples of a sweep or longmixed run."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from common.kinds.sweep import load, strata
from common.kinds.sweep.plan import LAYOUTS, OFF, ON
from common.kinds.sweep.schema import (
    Document,
    Drafter,
    Layout,
    Limits,
    Measured,
    Ratio,
    ShapeRatio,
    Summary,
    Turn,
    Waits,
)
from common.measure import energy, stats
from common.measure import rows as measure_rows
from common.measure.journal import Sample, Trial
from common.measure.log import Log
from common.measure.rows import given, significant
from common.measure.summary import Drift, SpeedUp


def summarise(folder: Path) -> Summary:
    """Every figure of a sweep's or longmixed's report, from the run directory alone."""
    log = Log(folder)
    trials, limits = log.main(), _limits(log)
    batches = [trial for trial in trials if "users" not in trial]
    # a loop in which nobody asked a second time has no steady part
    loops = [
        trial
        for trial in trials
        if "users" in trial and load.steady(trial["samples"], trial["users"])
    ]
    counts = sorted({cell["at_once"] for cell in log.cells.values()})
    kinds = list(dict.fromkeys(cell["kind"] for cell in log.cells.values()))
    places = [(kind, count) for kind in kinds for count in counts]
    shapes = sorted({(c["kind"], c["shape"]) for c in log.cells.values() if "shape" in c})
    of_shape = [(kind, shape, count) for kind, shape in shapes for count in counts]
    ratios = [
        _ratio(log, _at(log, batches, kind, count), _at(log, loops, kind, count), kind, count)
        for kind, count in places
    ]
    return {
        **log.head(),
        "document": cast(Document, log.manifest["plan"]["inputs"]),
        "limits": limits,
        "rows": [
            {
                **_measured(log, _at(log, batches, kind, count, shape), arm, kind, count, limits),
                "shape": shape,
            }
            for kind, shape, count in of_shape
            for arm in log.arms
        ],
        "loops": [
            {**_measured(log, own, arm, kind, count, limits)}
            for kind, count in places
            if (own := _at(log, loops, kind, count))
            for arm in log.arms
        ],
        "ratios": ratios,
        "by_shape": [
            _of_shape(log, _at(log, batches, kind, count, shape), kind, shape, count)
            for kind, shape, count in of_shape
            if len(shapes) > len(kinds)
        ],
        "turns": _turns(ratios, kinds),
        "energy": energy.summarised(
            log,
            [_group(_at(log, batches, kind, count), log, kind, count) for kind, count in places],
        ),
        "infeasible": log.infeasible(),
        "failed": log.failed(),
        "drift": _drift(log, batches),
        "flags": log.flags(),
        "known_answer": log.known_answer(trials),
        "cells_wrong": log.cells_wrong(trials),
        "time": log.time(),
    }


def _limits(log: Log) -> Limits:
    """What counts as good; runs of before there were limits have none."""
    settings = log.manifest["settings"]
    ttft, tpot = (settings.get(f"GOODPUT_{name}_MS") for name in ("TTFT", "TPOT"))
    return {"ttft": float(ttft or 0) or None, "tpot": float(tpot or 0) or None}


def _at(
    log: Log, trials: Sequence[Trial], kind: str, at_once: int, shape: str | None = None
) -> list[Trial]:
    wanted = (kind, at_once)
    return [
        trial
        for trial in trials
        if (cell := log.cells[trial["cell"]])
        and (cell["kind"], cell["at_once"]) == wanted
        and shape in (None, cell.get("shape"))
    ]


def _measured(
    log: Log, trials: list[Trial], arm: str, kind: str, at_once: int, limits: Limits
) -> Measured:
    """One arm at one place: batches, or closed loops."""
    own = [trial for trial in trials if trial["arm"] == arm]
    rates = [load.rates(trial) for trial in own]
    counted = [given(trial["counters"])["busy_slots"] for trial in own]
    busy = [value for value in counted if value is not None]
    return {
        "arm": arm,
        "kind": kind,
        "at_once": at_once,
        "tokens_per_second": _mean([rate.output for rate in rates]),
        "total_per_second": _mean([rate.total for rate in rates]),
        "requests_per_second": _mean([rate.requests for rate in rates]),
        "round_spread": _spread(own),
        "waits": _waits([sample for trial in own for sample in load.waiting(trial)], limits),
        "busy_slots": significant(statistics.fmean(busy)) if busy else None,
        "kept": measure_rows.kept(own),
        "memory_mib": measure_rows.memory(own, log.ready_memory(arm)),
        "trials": len(own),
    }


def _mean(values: list[float]) -> float | None:
    return significant(stats.geometric_mean(values)) if values else None


def _waits(samples: list[Sample], limits: Limits) -> Waits:
    def every(name: str) -> list[float]:
        return [value for sample in samples if (value := cast(Any, sample)[name]) is not None]

    return {
        "requests": len(samples),
        "ttft": measure_rows.percentiles(every("ttft_ms")),
        "tpot": measure_rows.percentiles([tpot for s in samples if (tpot := _tpot(s)) is not None]),
        "reply": measure_rows.percentiles(every("wall_ms")),
        "gaps": measure_rows.gaps(samples),
        "goodput": _goodput(samples, limits),
    }


def _tpot(sample: Sample) -> float | None:
    """Milliseconds per output token after the first, on the client's clock."""
    first, last, tokens = sample["ttft_ms"], sample["last_text_ms"], given(sample["predicted_n"])
    return None if first is None or last is None or tokens < 2 else (last - first) / (tokens - 1)


def _goodput(samples: list[Sample], limits: Limits) -> float | None:
    if not samples or set(limits.values()) == {None}:
        return None
    pairs = [((s["ttft_ms"], limits["ttft"]), (_tpot(s), limits["tpot"])) for s in samples]
    good = [
        all(limit is None or (value is not None and value <= limit) for value, limit in pair)
        for pair in pairs
    ]
    return significant(sum(good) / len(good))


def _spread(trials: list[Trial]) -> float | None:
    """The fastest over the slowest round, minus 1."""
    rounds: dict[str, list[float]] = {}
    for trial in trials:
        rounds.setdefault(trial["round"], []).append(load.speed(trial))
    means = [stats.geometric_mean(own) for own in rounds.values()]
    return significant(max(means) / min(means) - 1) if len(means) > 1 else None


def _drift(log: Log, batches: list[Trial]) -> Drift:
    """Every round asks the same of the first arm, in other words, so its rounds have a range."""
    return {
        **log.drift(load.speed),
        "range": _spread([trial for trial in batches if trial["arm"] == log.arms[0]]),
    }


def _over(log: Log, trials: list[Trial], arm: str, base: str) -> SpeedUp | None:
    ours, theirs = (measure_rows.speeds(trials, name, load.speed) for name in (arm, base))
    shape_of = {trial["cell"]: log.cells[trial["cell"]].get("shape", "") for trial in trials}
    return strata.speed_up(theirs, ours, shape_of)


def _drafter(log: Log, trials: list[Trial]) -> Drafter:
    """Drafter over none in each layout."""
    return {layout: _over(log, trials, f"{ON}, {layout}", f"{OFF}, {layout}") for layout in LAYOUTS}


def _ratio(log: Log, batches: list[Trial], loops: list[Trial], kind: str, at_once: int) -> Ratio:
    """What the drafter is worth, and sharing the cache with and without it."""
    return {
        "kind": kind,
        "at_once": at_once,
        "drafter": _drafter(log, batches),
        "loop": _drafter(log, loops),
        "sharing": {
            "none": _over(log, batches, f"{OFF}, shared", f"{OFF}, per-slot"),
            "drafter": _over(log, batches, f"{ON}, shared", f"{ON}, per-slot"),
        },
    }


def _group(trials: list[Trial], log: Log, kind: str, at_once: int) -> energy.Group:
    """All shapes of one kind and number of requests, each arm over no drafter in its layout."""
    over = {f"{ON}, {layout}": f"{OFF}, {layout}" for layout in LAYOUTS}
    arms = {arm: over.get(arm) for arm in log.arms}
    return energy.Group(f"{kind}, {at_once} at once", trials, arms)


def _of_shape(log: Log, trials: list[Trial], kind: str, shape: str, at_once: int) -> ShapeRatio:
    return {"kind": kind, "shape": shape, "at_once": at_once, "drafter": _drafter(log, trials)}


def _turns(ratios: list[Ratio], kinds: list[str]) -> list[Turn]:
    looped = any(any(row["loop"].values()) for row in ratios)
    return [
        _turn(ratios, kind, layout, loop)
        for kind in kinds
        for layout in LAYOUTS
        for loop in ((False, True) if looped else (False,))
    ]


def _turn(ratios: list[Ratio], kind: str, layout: Layout, loop: bool) -> Turn:
    """The number of requests at once from which the drafter is a loss."""
    points = [
        (float(row["at_once"]), up)
        for row in ratios
        if row["kind"] == kind and (up := (row["loop"] if loop else row["drafter"])[layout])
    ]
    return {
        "kind": kind,
        "layout": layout,
        "loop": loop,
        **measure_rows.reach(points),
        "most": max((count for count, _ in points), default=None),
    }
