"""What is made of the samples of a formats run."""

from pathlib import Path

from common.files.wanted import OTHERS
from common.kinds.formats.schema import Arm, Summary
from common.measure import rows
from common.measure.journal import Trial
from common.measure.log import Log
from common.measure.rows import BASELINE, cell_rows, equal_replies


def summarise(folder: Path) -> Summary:
    """Every figure of a formats report, from the run directory alone."""
    log = Log(folder)
    trials = log.main()
    drafters = log.manifest["plan"]["inputs"]["drafters"]
    own, formats = next(iter(drafters)), list(drafters)[: 1 + len(OTHERS)]
    return {
        **log.head(),
        "own": own,
        "draft_length": int(log.manifest["settings"]["SPEC_DRAFT_N_MAX"]),
        "arms": [_arm(log, arm, own, trials) for arm in log.arms],
        "cells": cell_rows(log.cells, log.arms, trials),
        "all_equal": equal_replies(log.of_kind("greedy"), formats),
        "drift": log.drift(),
        "flags": log.flags(),
        "known_answer": log.known_answer(trials),
        "time": log.time(),
    }


def _arm(log: Log, arm: str, own: str, trials: list[Trial]) -> Arm:
    """One arm; `over_own` is its speed over the rig's own format's."""
    speeds, greedy = rows.speeds(trials, arm), log.of_kind("greedy")
    up = over = None
    if arm != BASELINE:
        up = rows.speed_up(rows.speeds(trials, BASELINE), speeds)
    if arm not in (BASELINE, own):
        over = rows.speed_up(rows.speeds(trials, own), speeds)
    return {
        "arm": arm,
        "file": log.manifest["plan"]["inputs"]["drafters"].get(arm),
        "tokens_per_second": rows.mean_speed(speeds),
        "speed_up": up,
        "over_own": over,
        "kept": rows.kept([trial for trial in trials if trial["arm"] == arm]),
        "memory_mib": log.memory(arm),
        "equal_none": None if arm == BASELINE else equal_replies(greedy, [BASELINE, arm]),
        "equal_own": None if arm in (BASELINE, own) else equal_replies(greedy, [own, arm]),
    }
