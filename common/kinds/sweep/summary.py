"""What is made of the samples of a sweep or longmixed run."""

import statistics
from pathlib import Path
from typing import cast

from common.kinds.sweep.plan import LAYOUTS, OFF, ON
from common.kinds.sweep.schema import (
    Document,
    Layout,
    Measured,
    Percentiles,
    Ratio,
    Row,
    Summary,
    Turn,
)
from common.measure import energy, stats
from common.measure import rows as measure_rows
from common.measure.journal import Sample, Trial
from common.measure.log import Log
from common.measure.rows import given, output_speed, significant
from common.measure.summary import SpeedUp


def summarise(folder: Path) -> Summary:
    """Every figure of a sweep's or longmixed's report, from the run directory alone."""
    log = Log(folder)
    trials = log.main()
    cells = log.cells.values()
    counts = sorted({cell["at_once"] for cell in cells})
    groups = sorted({(cell["kind"], cell["shape"]) for cell in cells})
    kinds = list(dict.fromkeys(cell["kind"] for cell in cells))
    rows: list[Row] = [
        {
            **_measured(log, [t for t in trials if _is(log, t, kind, shape, count)], arm),
            "kind": kind,
            "shape": shape,
            "at_once": count,
        }
        for kind, shape in groups
        for count in counts
        for arm in log.arms
    ]
    ratios = [
        _ratios(log, [t for t in trials if _is(log, t, kind, None, count)], kind, count)
        for kind in kinds
        for count in counts
    ]
    return {
        **log.head(),
        "document": cast(Document, log.manifest["plan"]["inputs"]),
        "rows": rows,
        "ratios": ratios,
        "turns": [_turn(ratios, kind, layout) for kind in kinds for layout in LAYOUTS],
        "energy": energy.summarised(
            log, [_group(log, trials, kind, count) for kind in kinds for count in counts]
        ),
        "infeasible": log.infeasible(),
        "failed": log.failed(),
        "drift": log.drift(output_speed),
        "flags": log.flags(),
        "known_answer": log.known_answer(trials),
        "cells_wrong": log.cells_wrong(trials),
        "time": log.time(),
    }


def _is(log: Log, trial: Trial, kind: str, shape: str | None, at_once: int) -> bool:
    cell = log.cells[trial["cell"]]
    return bool(
        cell["kind"] == kind and cell["at_once"] == at_once and shape in (None, cell["shape"])
    )


def _measured(log: Log, trials: list[Trial], arm: str) -> Measured:
    """One arm at one shape and number of requests."""
    own = [trial for trial in trials if trial["arm"] == arm]
    samples = [sample for trial in own for sample in trial["samples"]]
    counted = [given(trial["counters"])["busy_slots"] for trial in own]
    busy = [value for value in counted if value is not None]
    return {
        "arm": arm,
        "tokens_per_second": measure_rows.mean_speed(measure_rows.speeds(own, speed=output_speed)),
        "repeats_spread": _spread(measure_rows.speeds(own, speed=output_speed)),
        "ttft_ms": _percentiles([s["ttft_ms"] for s in samples if s["ttft_ms"] is not None]),
        "tpot_ms": _percentiles([tpot for s in samples if (tpot := _tpot(s)) is not None]),
        "busy_slots": significant(statistics.fmean(busy)) if busy else None,
        "kept": measure_rows.kept(own),
        "memory_mib": measure_rows.memory(own, log.ready_memory(arm)),
        "trials": len(own),
    }


def _tpot(sample: Sample) -> float | None:
    """Milliseconds per output token after the first, on the client's clock."""
    first, last, tokens = sample["ttft_ms"], sample["last_text_ms"], given(sample["predicted_n"])
    return None if first is None or last is None or tokens < 2 else (last - first) / (tokens - 1)


def _percentiles(values: list[float]) -> Percentiles:
    if not values:
        return {"p50": None, "p90": None, "p99": None}
    cuts = (
        statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    )
    p50, p90, p99 = (significant(cuts[p - 1]) for p in (50, 90, 99))
    return {"p50": p50, "p90": p90, "p99": p99}


def _spread(speeds: dict[stats.Key, float]) -> float | None:
    """Largest over smallest speed of the same batch in different rounds, minus 1; the worst."""
    worst = None
    for cell in {cell for cell, _ in speeds}:
        own = [value for (name, _), value in speeds.items() if name == cell]
        if len(own) > 1:
            worst = max(worst or 0.0, max(own) / min(own) - 1)
    return significant(worst)


def _ratios(log: Log, trials: list[Trial], kind: str, at_once: int) -> Ratio:
    """Drafter over none in each layout, and shared over per-slot with and without drafter."""
    speeds = {arm: measure_rows.speeds(trials, arm, output_speed) for arm in log.arms}

    def over(arm: str, base: str) -> SpeedUp | None:
        return measure_rows.speed_up(speeds[base], speeds[arm])

    return {
        "kind": kind,
        "at_once": at_once,
        "drafter": {layout: over(f"{ON}, {layout}", f"{OFF}, {layout}") for layout in LAYOUTS},
        "sharing": {
            "none": over(f"{OFF}, shared", f"{OFF}, per-slot"),
            "drafter": over(f"{ON}, shared", f"{ON}, per-slot"),
        },
    }


def _group(log: Log, trials: list[Trial], kind: str, at_once: int) -> energy.Group:
    """All shapes of one kind and number of requests, each arm over no drafter in its layout."""
    own = [trial for trial in trials if _is(log, trial, kind, None, at_once)]
    over = {f"{ON}, {layout}": f"{OFF}, {layout}" for layout in LAYOUTS}
    return energy.Group(f"{kind}, {at_once} at once", own, {arm: over.get(arm) for arm in log.arms})


def _turn(ratios: list[Ratio], kind: str, layout: Layout) -> Turn:
    """The number of requests at once from which the drafter is a loss."""
    points = [
        (float(row["at_once"]), up)
        for row in ratios
        if row["kind"] == kind and (up := row["drafter"][layout])
    ]
    most = max((count for count, _ in points), default=None)
    return {
        "kind": kind,
        "layout": layout,
        **measure_rows.crossing(points),
        "pays_to": measure_rows.pays_to(points),
        "most": most,
    }
