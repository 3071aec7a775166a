"""Speed: which arms and cells `make speed` measures, and what is made of the samples."""

from pathlib import Path
from typing import Any

from common.errors import RigError
from common.measure import log as summaries
from common.measure import rows as measure_rows
from common.measure import stats
from common.measure.log import Log
from common.measure.plan import Arm, Cell, Plan, Round
from common.measure.rows import BASELINE, Trial, significant
from common.measure.texts import SIX, prompts
from common.rig import Rig
from common.serving import client

TOKENS = 256
QUICK_TOKENS = 64
GREEDY = {"temperature": 0, "seed": 1}
SAMPLED = {"temperature": 0.8, "seed": 1}


def plan(rig: Rig, quick: bool = False) -> Plan:
    """Six prompts; three greedy rounds, one at temperature 0.8, and the drift check.

    A quick plan has three prompts, 64 tokens and one greedy round.
    """
    texts = prompts(SIX)
    names = list(texts)[: 3 if quick else None]
    tokens = QUICK_TOKENS if quick else TOKENS
    cells = [Cell(name, [client.chat(texts[name], tokens)]) for name in names]
    rounds = [Round(f"greedy-{i + 1}", "greedy", GREEDY) for i in range(1 if quick else 3)]
    if not quick:
        rounds.append(Round("sampled-1", "sampled", SAMPLED))
    rounds.append(Round("drift", "drift", GREEDY))
    return Plan("speed", arms(rig), cells, rounds, quick, prompts=SIX)


def arms(rig: Rig) -> list[Arm]:
    """No drafter first, then every draft type and length that tpu.env names."""
    types = rig.speed_spec_types or ((rig.spec_type,) if rig.drafts and rig.spec_type else ())
    found = [Arm(BASELINE, {"SPEC_TYPE": ""})]
    for kind in types:
        change = {"SPEC_TYPE": kind.replace("+", ",")}
        prefix = f"{kind.replace(',', '+')} " if len(types) > 1 else ""
        if not rig.variant(change).needs_drafter:
            found.append(Arm(kind.replace(",", "+"), change))
            continue
        for length in rig.speed_n_max or (rig.spec_draft_n_max or 1,):
            found.append(Arm(f"{prefix}n={length}", {**change, "SPEC_DRAFT_N_MAX": str(length)}))
    if len(found) == 1:
        raise RigError(
            f"{rig.name}: nothing to compare with no drafter; set SPEC_TYPE and SPEC_DRAFT_MODEL, "
            "or SPEED_SPEC_TYPES"
        )
    return found


def summarise(folder: Path) -> dict[str, Any]:
    """Every figure of a speed report, from the run directory alone."""
    log = summaries.Log(folder)
    greedy, sampled = log.of_kind("greedy"), log.of_kind("sampled")
    return {
        **log.head(),
        "arms": [_arm(log, name, greedy) for name in log.arms],
        "sampled": [_speed(name, sampled) for name in log.arms],
        "cells": cell_rows(log, greedy),
        "drift": log.drift(),
        "equal_text": [_equal_text(name, greedy) for name in log.arms],
        "flags": log.flags(),
        "known_answer": log.known_answer(greedy),
        "time": log.time(),
    }


def _speed(arm: str, trials: list[Trial]) -> dict[str, Any]:
    """Speed, speed-up and kept of one arm over some trials; absent values are None."""
    speeds, up = measure_rows.speeds(trials, arm), None
    if arm != BASELINE:
        up = measure_rows.speed_up(measure_rows.speeds(trials, BASELINE), speeds)
    return {
        "arm": arm,
        "tokens_per_second": measure_rows.mean_speed(speeds),
        "speed_up": up,
        "kept": measure_rows.kept([trial for trial in trials if trial["arm"] == arm]),
    }


def _arm(log: Log, arm: str, greedy: list[Trial]) -> dict[str, Any]:
    own = [trial for trial in log.trials if trial["arm"] == arm]
    ttft = [trial["samples"][0]["ttft_ms"] for trial in greedy if trial["arm"] == arm]
    measured = [value for value in ttft if value is not None]
    return {
        **_speed(arm, greedy),
        "ttft_ms": significant(stats.geometric_mean(measured)) if measured else None,
        "memory_mib": measure_rows.memory(own, log.ready_memory(arm)),
    }


def cell_rows(log: Log, greedy: list[Trial]) -> list[dict[str, Any]]:
    """Speed, speed-up and kept of every arm at every prompt."""
    rows = []
    for cell in log.cells:
        own = [trial for trial in greedy if trial["cell"] == cell]
        for arm in log.arms:
            speed = _speed(arm, own)
            up = speed["speed_up"]
            rows.append({**speed, "cell": cell, "speed_up": up["ratio"] if up else None})
    return rows


def _equal_text(arm: str, greedy: list[Trial]) -> dict[str, Any]:
    """Replies equal to the baseline's of the same cell and round; for the baseline itself, to
    its own first round: the control."""
    first = min((trial["round"] for trial in greedy), default=None)
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
