"""Runs for tests: a committed one, copied and changed, so that what differs is known."""

import json
import shutil
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from common import kinds, report
from common.measure import run
from common.rig import ROOT

SPEED = ROOT / "local-llamacpp-cpu-tiny-q4_0" / "benchmarks" / "runs" / "2026-12-01-speed-cpu"
TUNE = SPEED.with_name("2026-12-01-tune-cpu")
SWEEP = SPEED.with_name("2026-12-01-sweep-cpu")
REPACK = SPEED.with_name("2026-11-29-bench-repack-cpu")
# What a manifest has beside its head: for runs of which that does not matter.
HEAD = ("version", "what", "rig", "started", "ended")
MADE = {key: value for key, value in run.read_manifest(SPEED).items() if key not in HEAD}
DAYS = count(1)
CARD = {
    "name": "NVIDIA GeForce RTX 3050 OEM",
    "driver": "615.78.08",
    "cuda": "13.4",
    "memory_mib": 8192,
    "power_limit_w": 120.0,
    "vbios": None,
    "compute_capability": [8, 6],
}


def copied(
    source: Path,
    folder: Path,
    change: Callable[[dict[str, Any]], object] = lambda _manifest: None,
    factor: Callable[[dict[str, Any]], float] = lambda _trial: 1.0,
) -> Path:
    """A copy with the manifest changed and every speed multiplied, and the summary that gives.

    Each copy is moved in time by some days, since equal journals are the same run.
    """
    folder.mkdir(parents=True)
    for name in (run.MANIFEST, run.STARTS, run.JOURNAL):
        if (source / name).is_file():
            shutil.copy(source / name, folder)
    manifest: Any = run.read_manifest(folder)
    change(manifest)
    (folder / run.MANIFEST).write_text(json.dumps(manifest))
    lines, later = run.read_lines(folder, run.JOURNAL), 86400 * next(DAYS)
    for line in lines:
        times = factor(line)
        for key in line.keys() & {"start", "end"}:
            line[key] += later
        for sample in line.get("samples", []):
            sample["predicted_per_second"] *= times
            for key in ("sent_ms", "ttft_ms", "last_text_ms", "wall_ms"):
                sample[key] = sample[key] / times if sample.get(key) else sample.get(key)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / run.JOURNAL).write_text(text)
    summarise(folder)
    return folder


def summarise(folder: Path) -> None:
    summary = kinds.of(run.read_manifest(folder)["what"]).summarise(folder)
    (folder / report.SUMMARY).write_text(json.dumps(summary, indent=1) + "\n")


def change_summary(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / report.SUMMARY
    summary = json.loads(path.read_text())
    change(summary)
    path.write_text(json.dumps(summary))


def on_card(manifest: dict[str, Any]) -> None:
    """As if measured on a card, all else the same."""
    manifest["card"] = dict(CARD)


def check(name: str, *found: Mapping[str, Any]) -> None:
    """Hold a file of a run, or its lines, to their type. Raises RigError."""
    for one in found:
        run.check(name, one)
