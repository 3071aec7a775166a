"""Resume: the unfinished run that goes on, held to what it was begun under."""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common import atomic
from common.errors import RigError
from common.measure import run
from common.measure.run import JOURNAL, STARTS, TELEMETRY, DamagedError, Run
from common.rig import GROUPS, Rig

# What may differ between the first part of a run and its continuation; of settings, the address.
FREE_TO_CHANGE = {"version", "started", "ended", "wall_s", "overridden", "energy"}
FREE_SETTINGS = {key for key, group in GROUPS.items() if group == "address"}
NOTED_LATER = {"environment"}
"""what a manifest of before it was noted may lack"""
Say = Callable[[str], object]
ANEW = "measure anew without RESUME=1"
"""how the refusal ends of a run that cannot go on here"""


def resume(rig: Rig, what: str, manifest: Mapping[str, Any], out: Path | None, say: Say) -> Run:
    """The last unfinished run of this kind that has trials, else the last one without, if it was
    made on this host and under the same settings.

    `say` is told of folders that are passed over, and of damaged lines, which are set aside.
    Raises RigError if there is none, or if something differs (naming it).
    """
    folder = out or last_unfinished(rig, what, say)
    if folder is None:
        raise RigError(f"{rig.runs_folder} has no unfinished {what} run; leave RESUME=1 out")
    old = run.read_manifest(folder)
    if old["ended"]:
        raise RigError(f"{folder} is finished; leave RESUME=1 out to measure again")
    new = json.loads(json.dumps({"what": what, "rig": rig.name, **manifest}))
    if differs := _difference(_comparable(old, old), _comparable(new, old)):
        host = "on another host, or another system" if differs[0] else "under other settings"
        raise RigError(f"{folder} was started {host}: {differs[1]}; {ANEW}")
    _drop_torn_lines(folder)
    for said in set_aside(folder):
        say(said)
    return Run(folder, old)


def _comparable(found: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest without what may differ, and without what the older one does not say."""
    left = FREE_TO_CHANGE | (NOTED_LATER - old.keys())
    kept = {key: value for key, value in found.items() if key not in left}
    settings = found.get("settings") or {}
    kept["settings"] = {key: v for key, v in settings.items() if key not in FREE_SETTINGS}
    kept["host"] = {key: v for key, v in found["host"].items() if key in old["host"]}
    return kept


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[bool, str] | None:
    """Whether it is the host that differs, and the first value that does, by its last name."""
    for key in sorted(new.keys() | old.keys()):
        if old.get(key) != new.get(key):
            return key in ("host", "card", "environment"), _named(key, old, new)
    return None


def _named(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    before, after = old.get(key), new.get(key)
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                return _named(name, before, after)
    return f"{key} was {before!r}, is now {after!r}"


def last_unfinished(rig: Rig, what: str, say: Say) -> Path | None:
    """The run of this kind that RESUME=1 continues."""
    pattern = re.compile(rf"\d{{4}}-\d\d-\d\d-{re.escape(what)}-{rig.hardware}(-\d+)?")
    found = []
    for path in sorted(rig.runs_folder.glob("*")):
        if not pattern.fullmatch(path.name):
            continue
        try:
            manifest = run.read_manifest(path)
        except RigError as error:
            say(f"passed over: {error}")
            continue
        if not manifest["ended"]:
            found.append((_has_trials(path), manifest["started"], path))
    return max(found)[2] if found else None


def _has_trials(folder: Path) -> bool:
    path = folder / JOURNAL
    return path.is_file() and path.stat().st_size > 0


def _drop_torn_lines(folder: Path) -> None:
    for name in (JOURNAL, STARTS, TELEMETRY):
        path = folder / name
        if path.is_file():
            data = path.read_bytes()
            os.truncate(path, data.rfind(b"\n") + 1)


def set_aside(folder: Path) -> list[str]:
    """Move damaged lines of the journal and the starts into a file of their own beside it, as they
    are, and say so: a sentence for each file. What they held is then measured again, or missing.

    Raises RigError for a line of a later version: that is not damaged.
    """
    said = []
    for name in (JOURNAL, STARTS):
        good, bad = [], []
        for line, where in run.whole_lines(folder / name):
            try:
                run.known(line, name, where)
                good.append(line)
            except DamagedError:
                bad.append((line, where))
        if bad:
            other = folder / f"{Path(name).stem}.damaged.jsonl"
            _move(folder / name, good, [line for line, _where in bad], other)
            numbers = ", ".join(where.rpartition(" ")[2] for _line, where in bad)
            said.append(f"damaged: {folder / name}, line {numbers}; set aside in {other.name}")
    return said


def _move(path: Path, good: list[bytes], bad: list[bytes], other: Path) -> None:
    """The bad lines are on the disk before they are gone from the journal."""
    try:
        before = run.content(other) if other.exists() else b""
        atomic.write(other, before + b"".join(line + b"\n" for line in bad), sync=True)
        atomic.write(path, b"".join(line + b"\n" for line in good), sync=True)
    except OSError as error:
        raise RigError(
            f"damaged lines of {path} cannot be set aside: {error.strerror or error}",
            fix="make room there, and try again",
        ) from None
