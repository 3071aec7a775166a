"""What is made of the samples of a sweep or longmixed run."""

import statistics
from pathlib import Path
from typing import Any

from common.kinds.sweep.plan import LAYOUTS, OFF, ON
from common.measure import rows as measure_rows
from common.measure.log import Log
from common.measure.rows import Trial, output_speed, significant


def summarise(folder: Path) -> dict[str, Any]:
    """Every figure of a sweep's or longmixed's report, from the run directory alone."""
    log = Log(folder)
    greedy = log.of_kind("greedy")
    cells = log.cells.values()
    counts = sorted({cell["at_once"] for cell in cells})
    groups = sorted({(cell["kind"], cell["shape"]) for cell in cells})
    kinds = list(dict.fromkeys(cell["kind"] for cell in cells))
    rows = [
        _row(log, [t for t in greedy if _is(log, t, kind, shape, count)], arm)
        | {"kind": kind, "shape": shape, "at_once": count}
        for kind, shape in groups
        for count in counts
        for arm in log.arms
    ]
    ratios = [
        _ratios(log, [t for t in greedy if _is(log, t, kind, None, count)], kind, count)
        for kind in kinds
        for count in counts
    ]
    return {
        **log.head(),
        "document": log.manifest["plan"]["inputs"],
        "rows": rows,
        "ratios": ratios,
        "turns": [_turn(ratios, kind, layout) for kind in kinds for layout in LAYOUTS],
        "infeasible": log.infeasible(),
        "failed": log.failed(),
        "drift": log.drift(output_speed),
        "flags": log.flags(),
        "known_answer": log.known_answer(greedy),
        "cells_wrong": log.cells_wrong(greedy),
        "time": log.time(),
    }


def _is(log: Log, trial: Trial, kind: str, shape: str | None, at_once: int) -> bool:
    cell = log.cells[trial["cell"]]
    return bool(
        cell["kind"] == kind and cell["at_once"] == at_once and shape in (None, cell["shape"])
    )


def _row(log: Log, trials: list[Trial], arm: str) -> dict[str, Any]:
    """One arm at one shape and number of requests."""
    own = [trial for trial in trials if trial["arm"] == arm]
    samples = [sample for trial in own for sample in trial["samples"]]
    counted = [trial["counters"]["busy_slots"] for trial in own]
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


def _tpot(sample: dict[str, Any]) -> float | None:
    """Milliseconds per output token after the first, on the client's clock."""
    if sample["ttft_ms"] is None or sample["last_text_ms"] is None or sample["predicted_n"] < 2:
        return None
    return float((sample["last_text_ms"] - sample["ttft_ms"]) / (sample["predicted_n"] - 1))


def _percentiles(values: list[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p90": None, "p99": None}
    cuts = (
        statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    )
    return {f"p{p}": significant(cuts[p - 1]) for p in (50, 90, 99)}


def _spread(speeds: dict[Any, float]) -> float | None:
    """Largest over smallest speed of the same batch in different rounds, minus 1; the worst."""
    worst = None
    for cell in {cell for cell, _ in speeds}:
        own = [value for (name, _), value in speeds.items() if name == cell]
        if len(own) > 1:
            worst = max(worst or 0.0, max(own) / min(own) - 1)
    return significant(worst)


def _ratios(log: Log, trials: list[Trial], kind: str, at_once: int) -> dict[str, Any]:
    """Drafter over none in each layout, and shared over per-slot with and without drafter."""
    speeds = {arm: measure_rows.speeds(trials, arm, output_speed) for arm in log.arms}
    found: dict[str, Any] = {"kind": kind, "at_once": at_once, "drafter": {}, "sharing": {}}
    for layout in LAYOUTS:
        found["drafter"][layout] = measure_rows.speed_up(
            speeds[f"{OFF}, {layout}"], speeds[f"{ON}, {layout}"]
        )
    for name in (OFF, ON):
        found["sharing"][name] = measure_rows.speed_up(
            speeds[f"{name}, per-slot"], speeds[f"{name}, shared"]
        )
    return found


def _turn(ratios: list[dict[str, Any]], kind: str, layout: str) -> dict[str, Any]:
    """The number of requests at once from which the drafter is a loss."""
    points = [
        (float(row["at_once"]), row["drafter"][layout])
        for row in ratios
        if row["kind"] == kind and row["drafter"][layout]
    ]
    most = max((count for count, _ in points), default=None)
    return {
        "kind": kind,
        "layout": layout,
        **measure_rows.crossing(points),
        "pays_to": measure_rows.pays_to(points),
        "most": most,
    }
