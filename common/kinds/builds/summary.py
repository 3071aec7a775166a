"""What is made of the samples of a builds run."""

from pathlib import Path
from typing import Any

from common.engines.llamacpp import compiling
from common.kinds.builds.plan import PREFIX
from common.kinds.builds.schema import Arm, Build, Cell, Name, Summary
from common.measure import energy, rows
from common.measure.journal import Manifest, Trial
from common.measure.log import Log
from common.measure.rows import BASELINE


def summarise(folder: Path) -> Summary:
    """Every figure of a builds report, from the run directory alone."""
    log = Log(folder)
    trials = log.main()
    return {
        **log.head(),
        "builds": _builds(log.manifest),
        "arms": [_arm(log, arm, trials) for arm in log.arms],
        "cells": [
            _cell(cell, arm, trials) for cell in log.cells for arm in log.arms if not _is_other(arm)
        ],
        "energy": energy.summarised(log, [_group(log, trials)]),
        "drift": log.drift(),
        "flags": log.flags(),
        "known_answer": log.known_answer(trials),
        "time": log.time(),
    }


def engines(manifest: Manifest) -> dict[Name, dict[str, Any]]:
    """engine.json of the rig's own build and of the other."""
    return {"rig": manifest["engine"], "other": next(iter(manifest["engines"].values()))}


def _is_other(arm: str) -> bool:
    return arm.startswith(PREFIX)


def _builds(manifest: Manifest) -> list[Build]:
    """The two engines; `flags` are those that the other one has not."""
    infos = engines(manifest)
    flags = {build: info.get("cmake") or [] for build, info in infos.items()}
    shared = {*compiling.CMAKE, *(set(flags["rig"]) & set(flags["other"]))}
    images = manifest["plan"]["inputs"]["images"]
    return [
        {
            "build": build,
            "cuda_version": info.get("cuda_version"),
            "flags": [flag for flag in flags[build] if flag not in shared],
            "compiler": (info.get("version") or [None])[-1],
            "server_sha256": info.get("server_sha256"),
            "image": images.get(build),
        }
        for build, info in infos.items()
    ]


def _arm(log: Log, arm: str, trials: list[Trial]) -> Arm:
    """One arm: `speed_up` is over no drafter in the same build, `over_rig` over the rig's own build
    with the same drafter."""
    drafter = arm.removeprefix(PREFIX)
    baseline = arm.removesuffix(drafter) + BASELINE
    speeds, up, over, equal = rows.speeds(trials, arm), None, None, None
    if arm != baseline:
        up = rows.speed_up(rows.speeds(trials, baseline), speeds)
    if _is_other(arm):
        over = rows.speed_up(rows.speeds(trials, drafter), speeds)
        equal = rows.equal_replies(log.of_kind("greedy"), [drafter, arm])
    own = [trial for trial in trials if trial["arm"] == arm]
    return {
        "arm": arm,
        "build": "other" if _is_other(arm) else "rig",
        "drafter": drafter,
        "tokens_per_second": rows.mean_speed(speeds),
        "speed_up": up,
        "over_rig": over,
        "ttft_ms": rows.ttft(own),
        "kept": rows.kept(own),
        "memory_mib": log.memory(arm),
        "equal_rig": equal,
    }


def _group(log: Log, trials: list[Trial]) -> energy.Group:
    """Each arm over no drafter in its own build; that of the other build over the rig's own."""
    over: dict[str, str | None] = {}
    for arm in log.arms:
        drafter = arm.removeprefix(PREFIX)
        baseline = arm.removesuffix(drafter) + BASELINE
        over[arm] = baseline if arm != baseline else BASELINE if _is_other(arm) else None
    return energy.Group("", trials, over)


def _cell(cell: str, drafter: str, trials: list[Trial]) -> Cell:
    """One prompt with one drafter setting in both builds."""
    own = [trial for trial in trials if trial["cell"] == cell]
    rig, other = rows.speeds(own, drafter), rows.speeds(own, PREFIX + drafter)
    over = rows.speed_up(rig, other)
    return {
        "cell": cell,
        "drafter": drafter,
        "rig": rows.mean_speed(rig),
        "other": rows.mean_speed(other),
        "over_rig": over["ratio"] if over else None,
    }
