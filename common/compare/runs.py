"""Runs: one finished run read back for comparing, and whether it is what was measured."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from common import kinds, report
from common.compare import conditions
from common.errors import RigError
from common.known import chain
from common.measure import run, stats, written
from common.measure.journal import Manifest
from common.measure.log import Log
from common.rig import ROOT

CHANGED = "changed after measuring"
NOT_GIVEN = f"{CHANGED}: summary.json is not what the journal gives"
OLDER = "made by an older version of the formulas: the figures here are made anew"
QUICK = "quick: a look, not a result"
KNOWN_ANSWER = conditions.KNOWN_ANSWER
Speeds = Mapping[stats.Key, float]


@dataclass(frozen=True)
class Evidence:
    """A run. Its figures are made anew from its journal, so a changed summary changes nothing."""

    folder: Path
    manifest: Manifest
    summary: dict[str, Any]
    changed: str | None
    """which files are not what they were when the run ended, in words; such a run gives no ratio"""
    older: str | None
    """why its summary.json says something else although nothing was changed"""
    digest: str
    """SHA-256 of the journal: the same samples are the same run"""

    @property
    def what(self) -> str:
        return str(self.manifest["what"])

    @property
    def rig(self) -> str:
        return str(self.manifest["rig"])

    @property
    def name(self) -> str:
        return f"{self.rig}/{self.folder.name}"

    @property
    def quick(self) -> bool:
        return bool(self.manifest.get("plan", {}).get("quick"))

    @cached_property
    def log(self) -> Log:
        return Log(self.folder)

    def speeds(self, arm: str) -> dict[str, dict[stats.Key, float]]:
        """Place -> cell and round -> tokens per second, of one arm's greedy trials."""
        kind = kinds.of(self.what)
        found: dict[str, dict[stats.Key, float]] = {}
        for trial in self.log.main():
            if trial["arm"] == arm:
                place = kind.place_of(self.log.cells[trial["cell"]])
                found.setdefault(place, {})[trial["cell"], trial["round"]] = kind.speed(trial)
        return found

    def answer(self) -> str:
        return kinds.of(self.what).answer(self.summary, self.manifest)

    def labels(self) -> list[str]:
        """What a reader must know beside any of its figures."""
        found = [said for said in (self.changed, self.older) if said]
        if self.quick:
            found.append(QUICK)
        harness = self.manifest["harness"]
        if harness["dirty"] is not False:
            found.append(
                "measured with changed code"
                if harness["dirty"]
                else "the code that measured is not known"
            )
        settings = self.manifest.get("settings") or {}
        if self.what == "cost":
            found.append("random weights, acceptance set by hand")
        elif settings.get("SPEC_SYNTH_RATES"):
            found.append("acceptance was set by hand")
        if self.what != "cost" and chain.chain_of(settings.get("MODEL", "")):
            found.append(KNOWN_ANSWER)
        change = (self.summary.get("drift") or {}).get("change")
        if change is not None and abs(change) > conditions.DRIFT_SAID:
            found.append(f"drift {change:+.1%}")
        flags = self.summary.get("flags") or {}
        for key, words in FLAGS.items():
            if flags.get(key):
                found.append(f"{flags[key]} {words}")
        return found


FLAGS = {
    "throttled": "trials while the card was throttled",
    "failed_attempts": "failed attempts",
    "failed": "failed questions",
}


def read(folder: Path) -> Evidence:
    """Raises RigError if `folder` is no finished run that this version can read."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise RigError(f"{str(folder)!a}: the name is not UTF-8", fix="rename it") from None
    manifest = run.read_manifest(folder)
    what = manifest.get("what")
    if what not in kinds.NAMES:
        raise RigError(
            f"{folder} is a run of kind {what!r}, which this version does not know; "
            "update this project, or leave the run out"
        )
    if not manifest.get("ended"):
        raise RigError(f"{folder} is unfinished; continue it with RESUME=1, or leave it out")
    told = _summary(folder, str(what))
    with run.fits(folder):
        made = json.loads(json.dumps(kinds.of(what).summarise(folder)))
        digest = hashlib.sha256(run.content(folder / run.JOURNAL)).hexdigest()
        found = Evidence(folder, manifest, made, *_history(folder, told, made), digest)
        # Asked here, so that what is missing in a manifest is found where it can be said.
        conditions.hardware(manifest)
        found.labels()
    return found


def _summary(folder: Path, what: str) -> dict[str, Any]:
    path = folder / report.SUMMARY
    try:
        told = dict(run.parsed(run.content(path)))
    except (OSError, ValueError, TypeError) as error:
        raise RigError(
            f"{path} cannot be read: {error}; make it again: make report RUN={folder}"
        ) from None
    version = told.get("schema")
    if version != kinds.of(what).schema_version:
        raise RigError(
            f"{path} is of version {version!r}, which this version of the project does "
            "not know; update it, or leave the run out"
        )
    try:
        kinds.of(what).check(told)
    except RigError as error:
        raise RigError(f"{path}: {error}") from None
    return told


def _history(folder: Path, told: Any, made: Any) -> tuple[str | None, str | None]:
    """Which files were changed after measuring, and else why the summary told is not the one made.

    Of a run of before its files were noted, a summary that differs in a figure counts as changed:
    whether the formulas or the file did, nobody can tell.
    """
    names = written.changed(folder)
    if names:
        return f"{CHANGED}: {', '.join(names)} no longer as written", None
    if told == made:
        return None, None
    if names is not None:
        return None, OLDER
    keys = _keys_apart(told, made)
    if keys is None:
        return NOT_GIVEN, None
    return None, f"made by another version: its summary alone has, or lacks, {', '.join(keys)}"


def _keys_apart(a: Any, b: Any) -> list[str] | None:
    """The keys that only one of two JSON values has; None if they differ in anything else."""
    pairs, found = [], []
    if isinstance(a, dict) and isinstance(b, dict):
        pairs = [(a[key], b[key]) for key in sorted(a.keys() & b.keys())]
        found = sorted(a.keys() ^ b.keys())
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = list(zip(a, b, strict=True))
    elif a != b:
        return None
    for pair in pairs:
        below = _keys_apart(*pair)
        if below is None:
            return None
        found += [key for key in below if key not in found]
    return found


def finished() -> list[Path]:
    """The finished runs of this repository's rigs that have a report, and those that are damaged:
    who reads them is told why."""
    found = []
    for path in sorted(ROOT.glob("*/benchmarks/runs/*")):
        if (path / run.MANIFEST).is_file() and (path / report.SUMMARY).is_file():
            found += [path] if _ended(path) else []
    return found


def _ended(folder: Path) -> bool:
    try:
        return bool(run.read_manifest(folder).get("ended"))
    except RigError:
        return True
