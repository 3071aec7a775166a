"""What is made of the samples of a longctx run."""

from pathlib import Path
from typing import cast

from common.kinds.longctx.schema import Document, Gone, Row, Summary
from common.measure import rows as measure_rows
from common.measure.journal import Trial
from common.measure.log import Log
from common.measure.rows import BASELINE


def summarise(folder: Path) -> Summary:
    """Every figure of a long-context report, from the run directory alone."""
    log = Log(folder)
    trials = log.main()
    drafting = [arm for arm in log.arms if arm != BASELINE]
    depths = sorted({cell["depth"] for cell in log.cells.values()})
    rows = [_row(log, trials, depth, arm) for depth in depths for arm in log.arms]
    return {
        **log.head(),
        "document": cast(Document, log.manifest["plan"]["inputs"]),
        "rows": rows,
        "gone": [_gone(rows, arm) for arm in drafting],
        "infeasible": log.infeasible(),
        "failed": log.failed(),
        "drift": log.drift(),
        "flags": log.flags(),
        "known_answer": log.known_answer(trials),
        "cells_wrong": log.cells_wrong(trials),
        "time": log.time(),
    }


def _row(log: Log, trials: list[Trial], depth: int, arm: str) -> Row:
    here = [trial for trial in trials if log.cells[trial["cell"]]["depth"] == depth]
    own = [trial for trial in here if trial["arm"] == arm]
    speeds = measure_rows.speeds(own)
    up = None
    if arm != BASELINE:
        up = measure_rows.speed_up(measure_rows.speeds(here, BASELINE), speeds)
    reused = [trial["samples"][0]["cache_n"] for trial in own]
    return {
        "depth": depth,
        "arm": arm,
        "tokens_per_second": measure_rows.mean_speed(speeds),
        "speed_up": up,
        "kept": measure_rows.kept(own),
        "memory_mib": measure_rows.memory(own),
        "reused": max((count for count in reused if count is not None), default=None),
        "reading_per_second": measure_rows.reading_speed(own),
        "trials": len(own),
    }


def _gone(rows: list[Row], arm: str) -> Gone:
    """The depth at which the arm's gain is gone, with its interval."""
    points = [
        (float(row["depth"]), up) for row in rows if row["arm"] == arm and (up := row["speed_up"])
    ]
    deepest = max((depth for depth, _ in points), default=None)
    return {
        "arm": arm,
        **measure_rows.reach(points),
        "deepest": deepest,
    }
