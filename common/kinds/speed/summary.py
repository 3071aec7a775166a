"""What is made of the samples of a speed run."""

from pathlib import Path

from common.kinds.speed.schema import Arm, EqualText, Summary
from common.measure import energy, rows
from common.measure.journal import Trial
from common.measure.log import Log
from common.measure.rows import BASELINE


def summarise(folder: Path) -> Summary:
    """Every figure of a speed report, from the run directory alone."""
    log = Log(folder)
    trials, beside = log.main(), log.of_kind("greedy" if log.headline == "sampled" else "sampled")
    speeds = {arm: rows.speeds(trials, arm) for arm in log.arms}
    base = speeds.pop(BASELINE)
    return {
        **log.head(),
        "headline": "sampled" if log.headline == "sampled" else "greedy",
        "best": rows.best(base, speeds),
        "arms": [_arm(log, arm, trials) for arm in log.arms],
        "beside": [rows.arm_speed(arm, beside) for arm in log.arms] if beside else [],
        "beside_repetition": log.repetition(beside),
        "cells": rows.cell_rows(log.cells, log.arms, trials),
        "drift": log.drift(),
        "energy": energy.summarised(log, [_group(log, trials)]),
        "equal_text": [_equal_text(log, arm) for arm in log.arms],
        "flags": log.flags(),
        "known_answer": log.known_answer(trials),
        "time": log.time(),
    }


def _arm(log: Log, arm: str, trials: list[Trial]) -> Arm:
    own = [trial for trial in trials if trial["arm"] == arm]
    up = None
    if arm != BASELINE:
        whole = rows.speeds(trials, BASELINE, rows.reply_speed)
        up = rows.speed_up(whole, rows.speeds(own, speed=rows.reply_speed))
    return {
        **rows.arm_speed(arm, trials),
        "ttft_ms": rows.ttft(own),
        "ttft": rows.percentiles(rows.values(own, "ttft_ms")),
        "content": rows.percentiles(rows.values(own, "content_ms")),
        "reply": rows.percentiles(rows.values(own, "wall_ms")),
        "gaps": rows.gaps([sample for trial in own for sample in trial["samples"]]),
        "reading_per_second": rows.reading_speed(own),
        "whole_reply": up,
        "memory_mib": log.memory(arm),
    }


def _group(log: Log, trials: list[Trial]) -> energy.Group:
    over = {arm: None if arm == BASELINE else BASELINE for arm in log.arms}
    return energy.Group("", trials, over)


def _equal_text(log: Log, arm: str) -> EqualText:
    """Prompts with the baseline's greedy reply; for the baseline itself, with its own each time:
    the control."""
    greedy = log.of_kind("greedy")
    if arm == BASELINE:
        return {"arm": arm, **rows.equal_rounds(greedy, arm)}
    return {"arm": arm, **rows.equal_replies(greedy, [BASELINE, arm])}
