"""What is made of the samples of a speed run."""

from pathlib import Path

from common.kinds.speed.schema import Arm, EqualText, Summary
from common.measure.journal import Trial
from common.measure.log import Log
from common.measure.rows import BASELINE, arm_speed, cell_rows, ttft


def summarise(folder: Path) -> Summary:
    """Every figure of a speed report, from the run directory alone."""
    log = Log(folder)
    greedy, sampled = log.of_kind("greedy"), log.of_kind("sampled")
    return {
        **log.head(),
        "arms": [_arm(log, name, greedy) for name in log.arms],
        "sampled": [arm_speed(name, sampled) for name in log.arms],
        "cells": cell_rows(log.cells, log.arms, greedy),
        "drift": log.drift(),
        "equal_text": [_equal_text(name, greedy) for name in log.arms],
        "flags": log.flags(),
        "known_answer": log.known_answer(greedy),
        "time": log.time(),
    }


def _arm(log: Log, arm: str, greedy: list[Trial]) -> Arm:
    return {
        **arm_speed(arm, greedy),
        "ttft_ms": ttft([trial for trial in greedy if trial["arm"] == arm]),
        "memory_mib": log.memory(arm),
    }


def _equal_text(arm: str, greedy: list[Trial]) -> EqualText:
    """Replies equal to the baseline's of the same cell and round; for the baseline itself, to
    its own first round: the control."""
    first = min((trial["round"] for trial in greedy), default="")
    texts = {(t["arm"], t["cell"], t["round"]): t["samples"][0]["content"] for t in greedy}
    equal = of = 0
    for (name, cell, turn), text in texts.items():
        if name != arm or (arm == BASELINE and turn == first):
            continue
        other = texts.get((BASELINE, cell, first if arm == BASELINE else turn))
        if other is not None:
            of += 1
            equal += text == other
    return {"arm": arm, "equal": equal, "of": of}
