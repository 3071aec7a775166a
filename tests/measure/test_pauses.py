"""Pauses: waits between trials that a run's journal holds, and how a report says them."""

import json
from pathlib import Path
from typing import Any

from common.measure import page, run
from common.measure.log import PAUSE_S, Log
from tests.helpers.runs import SPEED

PLAN: dict[str, Any] = {
    "arms": {"none": {}, "n=2": {}},
    "cells": {},
    "order": [],
    "rounds": {},
    "quick": False,
}
START, TRIAL = (run.read_lines(SPEED, name)[0] for name in (run.STARTS, run.JOURNAL))


def start(turn: str, arm: str, ready_s: float = 1.0, cooled_s: float = 0.0) -> dict[str, Any]:
    return {
        **START,
        "version": run.VERSIONS[run.STARTS],
        "round": turn,
        "arm": arm,
        "ready_s": ready_s,
        "checked_s": None,
        "cooled_s": cooled_s,
    }


def log(
    folder: Path,
    lines: list[tuple[str, str, str, float, float]],
    starts: list[dict[str, Any]],
) -> Log:
    """A run of so many trials: round, arm, cell, start and end."""
    names = ("round", "arm", "cell", "start", "end")
    whole = {**run.read_manifest(SPEED), "version": run.VERSIONS[run.MANIFEST], "plan": PLAN}
    (folder / run.MANIFEST).write_text(json.dumps(whole))
    trial = {**TRIAL, "version": run.VERSIONS[run.JOURNAL]}
    told = [{**trial, **dict(zip(names, line, strict=True))} for line in lines]
    for name, some in ((run.JOURNAL, told), (run.STARTS, starts)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in some))
    return Log(folder)


def test_a_pause_inside_a_part_is_found(tmp_path: Path) -> None:
    lines = [
        ("part-1", "none", "a", 0.0, 10.0),
        ("part-1", "none", "b", 10.0 + PAUSE_S, 80.0),  # at the bound: no pause
        ("part-1", "none", "c", 80.0 + 2951.5, 3100.0),
    ]
    found = log(tmp_path, lines, [start("part-1", "none"), start("part-1", "none")]).pauses()
    assert found == [
        {
            "round": "part-1",
            "arm": "none",
            "after": "b",
            "before": "c",
            "seconds": 2951.5,
            "starts": 2,
        }
    ]
    said = page.pauses(found)
    assert "49 min 12 s in part-1 of none, between b and c (server started 2 times)" in said


def test_starting_and_cooling_is_no_pause(tmp_path: Path) -> None:
    lines = [
        ("part-1", "none", "a", 0.0, 10.0),
        ("part-1", "n=2", "a", 410.0, 420.0),
        ("part-2", "n=2", "b", 820.0, 830.0),
    ]
    starts = [
        start("part-1", "none"),
        start("part-1", "n=2", ready_s=90.0, cooled_s=300.0),
        start("part-2", "n=2", ready_s=90.0),
    ]
    (found,) = log(tmp_path, lines, starts).pauses()
    assert (found["round"], found["seconds"]) == ("part-2", 310.0)


def test_a_server_that_did_not_start_makes_no_pause(tmp_path: Path) -> None:
    lines = [("part-1", "none", "a", 0.0, 10.0), ("part-1", "n=2", "a", 700.0, 700.0)]
    found = log(tmp_path, lines, [start("part-1", "none")]).pauses()
    assert found == []
    assert page.pauses(found) == "- Pauses: none of over 60 s between two requests."
