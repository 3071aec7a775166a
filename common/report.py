"""REPORT.md, its figures and summary.json: a pure function of the run directory."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema

from common import (
    accuracy_report,
    accuracy_summary,
    bench,
    bench_report,
    builds,
    builds_report,
    cost,
    cost_report,
    formats,
    formats_report,
    identity,
    identity_report,
    longctx,
    longctx_report,
    repack_report,
    run,
    speed,
    speed_report,
    sweep,
    sweep_report,
    tune_report,
    tune_summary,
)
from common.errors import RigError

SUMMARY = run.SUMMARY
REPORT = "REPORT.md"
SCHEMAS = Path(__file__).parent / "schemas"
# What is made of a run directory, per kind of measurement.
SUMMARISE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "speed": speed.summarise,
    "longctx": longctx.summarise,
    "sweep": sweep.summarise,
    "longmixed": sweep.summarise,
    "bench-client": bench.summarise,
    "accuracy": accuracy_summary.summarise,
    "identity": identity.summarise,
    "formats": formats.summarise,
    "cost": cost.summarise,
    "builds": builds.summarise,
    "tune": tune_summary.summarise,
    "bench-repack": repack_report.summarise,
}
REPORTS: dict[str, ModuleType] = {
    "speed": speed_report,
    "longctx": longctx_report,
    "sweep": sweep_report,
    "longmixed": sweep_report,
    "bench-client": bench_report,
    "accuracy": accuracy_report,
    "identity": identity_report,
    "formats": formats_report,
    "cost": cost_report,
    "builds": builds_report,
    "tune": tune_report,
    "bench-repack": repack_report,
}


def write(folder: Path) -> Path:
    """Make summary.json, the figures and REPORT.md; returns the report's path.

    Raises RigError if `folder` is not a run directory, or holds no finished trial.
    """
    manifest = run.read_manifest(folder)
    what = manifest["what"]
    if what not in SUMMARISE:
        raise RigError(f"{folder}: there is no report for a run of kind {what!r}")
    if not any(line["failed"] is None for line in run.read_lines(folder, run.JOURNAL)):
        raise RigError(f"{folder} holds no finished trial, so there is nothing to report yet")
    summary = SUMMARISE[what](folder)
    check(summary)
    text = REPORTS[what].render(summary, manifest, folder)
    (folder / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    (folder / REPORT).write_text(text, encoding="utf-8")
    return folder / REPORT


def answer(folder: Path) -> str:
    """The report's answer in one sentence, from its summary.json."""
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return str(REPORTS[summary["what"]].answer(summary, run.read_manifest(folder)))


def check(summary: dict[str, Any]) -> None:
    """Hold a summary to its schema. Raises jsonschema.ValidationError."""
    schema = json.loads((SCHEMAS / f"{summary['what']}-{summary['schema']}.json").read_text())
    jsonschema.validate(summary, schema)
