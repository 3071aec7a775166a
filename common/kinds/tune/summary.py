"""What is made of a tune run: every setting tried, the confirmation, the recommendation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from common.errors import RigError
from common.kinds.tune import choosing, schema
from common.kinds.tune import course as tune
from common.kinds.tune.course import CHOOSE, CONFIRM, Course, Journal, Space, Stage
from common.kinds.tune.rows import CONFIRMED
from common.kinds.tune.schema import (
    Confirm,
    Confirmed,
    Effort,
    Recommendation,
    Row,
    Summary,
    Workload,
)
from common.measure import energy, stats
from common.measure import rows as measure_rows
from common.measure.journal import Trial
from common.measure.log import Log
from common.measure.plan import Arm, Round
from common.measure.rows import output_speed, significant
from common.measure.summary import SpeedUp


def summarise(folder: Path) -> Summary:
    """Every figure of a tune report, from the run directory alone.

    Raises RigError if the run was decided by other rules than today's.
    """
    log = Log(folder)
    space = tune.space_of(log.manifest)
    course = tune.replay(space, log.lines)
    if course.todo and log.manifest["ended"]:
        raise RigError(f"{folder}: today's rules would have measured on; measure anew")
    log.arms = list(course.arms)
    log.manifest["plan"]["arms"] = {name: dict(arm.changes) for name, arm in course.arms.items()}
    inputs = log.manifest["plan"]["inputs"]
    counted = log.of_kind(CHOOSE) + log.of_kind(CONFIRM)
    confirm = _confirm(log, space, course)
    return {
        **log.head(),
        "repetition": log.repetition(log.of_kind(CONFIRM) or log.of_kind(CHOOSE)),
        "workload": inputs["workload"],
        "headline": "sampled" if space.headline == "sampled" else "greedy",
        "document": cast(
            schema.Document,
            {key: inputs[key] for key in ("document", "document_sha256") if key in inputs},
        ),
        "slots": int(log.manifest["settings"]["PARALLEL"]),
        "current": course.current.name,
        "winner": course.winner.name if course.winner else None,
        "stages": [_stage(log, stage) for stage in course.stages],
        "confirm": confirm,
        "recommendation": recommendation(inputs["workload"], course, confirm),
        "effort": _effort(log, space, course),
        "energy": energy.summarised(log, _groups(log, space, course)),
        "failed": log.failed(),
        "drift": log.drift(output_speed),
        "flags": log.flags(),
        "known_answer": log.known_answer(counted),
        "cells_wrong": log.cells_wrong(counted),
        "time": log.time(),
    }


def _stage(log: Log, stage: Stage) -> schema.Stage:
    """One lever's arms, each over the best so far in the same rounds."""
    names = {turn.name for turn in stage.rounds}
    trials = [trial for trial in log.trials if trial["round"] in names]
    unchanged = stage.arms[0].name
    return {
        "lever": stage.lever,
        "over": unchanged,
        "skipped": stage.skipped,
        "best": stage.best.name if stage.best else None,
        "rows": [] if stage.skipped else [_row(log, stage, arm, trials) for arm in stage.arms],
    }


def _row(log: Log, stage: Stage, arm: Arm, trials: list[Trial]) -> Row:
    unchanged = stage.arms[0].name
    own = [trial for trial in trials if trial["arm"] == arm.name]
    base = measure_rows.speeds(trials, unchanged, output_speed)
    speeds = measure_rows.speeds(own, speed=output_speed)
    return {
        "arm": arm.name,
        "changes": dict(arm.changes),
        "prompts": len(own),
        "tokens_per_second": measure_rows.mean_speed(speeds),
        "speed_up": None if arm.name == unchanged else _while_choosing(base, speeds),
        "kept": measure_rows.kept(own),
        "memory_mib": measure_rows.memory(own, log.ready_memory(arm.name)),
        "dropped": stage.dropped.get(arm.name),
    }


def _while_choosing(base: choosing.Speeds, arm: choosing.Speeds) -> SpeedUp | None:
    """A speed-up with the interval that choosing goes by. It is none to call a verdict by."""
    found = measure_rows.speed_up(base, arm)
    if found is None:
        return None
    up = choosing.over_prompts(base, arm)
    low, high = significant(up.low), significant(up.high)
    return {**found, "low": low, "high": high, "verdict": "unknown"}


def _confirm(log: Log, space: Space, course: Course) -> Confirm | None:
    """The arms of the confirmation, over the current setting and over no drafter."""
    trials = log.of_kind(CONFIRM)
    if not trials:
        return None
    rounds = tune.confirm_rounds(space)
    journal = Journal(log.lines)
    done = [turn for turn in rounds if all(journal.holds(turn, arm) for arm in course.confirming)]
    if not done:
        return None
    speeds = {arm.name: journal.of(arm, done) for arm in course.confirming}
    none = next((arm.name for arm in course.confirming if _is_none(space, arm)), None)
    rows: list[Confirmed] = []
    for arm in course.confirming:
        own = [trial for trial in trials if trial["arm"] == arm.name]
        rows.append(
            {
                "arm": arm.name,
                "tokens_per_second": measure_rows.mean_speed(speeds[arm.name]),
                "over_current": over(speeds, course.current.name, arm.name),
                "over_none": over(speeds, none, arm.name) if none else None,
                "by_round": _by_round(speeds, course.current.name, arm.name, done),
                "kept": measure_rows.kept(own),
                "memory_mib": measure_rows.memory(own, log.ready_memory(arm.name)),
            }
        )
    prompts = sum(len(turn.only or ()) for turn in done)
    return {
        "rounds": len(done),
        "of": len(rounds),
        "prompts": prompts,
        "rows": rows,
        "failed": course.failed,
    }


def _groups(log: Log, space: Space, course: Course) -> list[energy.Group]:
    """Each lever's arms over the best so far, and the confirmation's over no drafter."""
    found = []
    for stage in course.stages:
        names = {turn.name for turn in stage.rounds}
        own = [trial for trial in log.trials if trial["round"] in names]
        base = stage.arms[0].name
        arms = [] if stage.skipped else [arm.name for arm in stage.arms]
        over = {arm: None if arm == base else base for arm in arms}
        found.append(energy.Group(stage.lever, own, over))
    none = next((arm.name for arm in course.confirming if _is_none(space, arm)), None)
    over = {arm.name: None if arm.name == none else none for arm in course.confirming}
    return [*found, energy.Group(CONFIRMED, log.of_kind(CONFIRM), over)]


def _is_none(space: Space, arm: Arm) -> bool:
    return not tune.drafts({**space.settings, **arm.changes})


def over(speeds: Mapping[str, Mapping[stats.Key, float]], base: str, arm: str) -> SpeedUp | None:
    """An arm's speed-up over another in the confirmation; None over itself or if unmeasured."""
    if base == arm or not speeds[base].keys() & speeds[arm].keys():
        return None
    return measure_rows.speed_up(speeds[base], speeds[arm])


def _by_round(
    speeds: Mapping[str, Mapping[stats.Key, float]], base: str, arm: str, rounds: Sequence[Round]
) -> list[float | None]:
    """The arm's speed over the current setting in each round."""
    if not speeds[base].keys() & speeds[arm].keys():
        return [None] * len(rounds)
    found = stats.speed_up(speeds[base], speeds[arm]).rounds
    return [significant(found.get(turn.name)) for turn in rounds]


def recommendation(workload: Workload, course: Course, confirm: Confirm | None) -> Recommendation:
    """What to set for the workload. No changes: leave the settings as they are."""
    found: Recommendation = {
        "workload": workload,
        "changes": {},
        "speed_up": None,
        "reason": "The run is not finished.",
    }
    if course.winner is None:
        return found
    current, winner, up = course.current.name, course.winner.name, course.confirmed
    if winner == current:
        return {**found, "reason": f"Nothing that was tried beats the current setting, {current}."}
    if course.failed:
        return {**found, "reason": f"The best found, {winner}, failed when it was to be confirmed."}
    if up is None:
        return {**found, "reason": f"The best found, {winner}, is not confirmed yet."}
    figure = f"{up.ratio:.3f}x ({up.low:.3f} to {up.high:.3f}) the speed of {current}"
    if not course.recommended:
        worth = f"{choosing.WORTH - 1:.0%}"
        why = f"is not surely {worth} faster on other prompts"
        if up.low is not None and up.low >= choosing.WORTH:
            ahead = sum(ratio > 1 for ratio in up.rounds.values())
            why = f"was faster in only {ahead} of {len(up.rounds)} rounds on other prompts"
        reason = f"The best found, {winner}, {why}: {figure}."
        return {**found, "reason": reason}
    reason = f"{winner} ran at {figure} on prompts that were not used to choose it."
    rows = confirm["rows"] if confirm else []
    (over_current,) = [row["over_current"] for row in rows if row["arm"] == winner]
    changes = dict(course.winner.changes)
    return {**found, "changes": changes, "speed_up": over_current, "reason": reason}


def _effort(log: Log, space: Space, course: Course) -> Effort:
    """Trials and seconds spent, beside those of the full grid, confirmed in the same way.

    The grid's seconds are its trials times what a trial took while choosing, starts included.
    """
    prompts = sum(len(cells) for cells in space.looks)
    tried = [stage for stage in course.stages if not stage.skipped]
    settings = len(tune.grid(space))
    choosing = [line for line in log.lines if log.kinds[line["round"]] == CHOOSE]
    seconds = {line["round"]: 0.0 for line in [*log.lines, *log.starts]}
    for line in log.lines:
        seconds[line["round"]] += line["end"] - line["start"]
    for start in log.starts:
        spent = start["ready_s"] + (start["checked_s"] or 0) + start["cooled_s"]
        seconds[start["round"]] += spent
    chosen_s = sum(spent for turn, spent in seconds.items() if log.kinds[turn] == CHOOSE)
    each = chosen_s / len(choosing) if choosing else None
    other, other_s = len(log.lines) - len(choosing), sum(seconds.values()) - chosen_s
    return {
        "trials": len(log.lines),
        "choosing_trials": len(choosing),
        "undropped_trials": prompts * sum(len(stage.arms) for stage in tried),
        "seconds": significant(sum(seconds.values())),
        "choosing_seconds": significant(chosen_s),
        "grid_settings": settings,
        "grid_trials": settings * prompts + other,
        "grid_seconds": significant(settings * prompts * each + other_s) if each else None,
    }
