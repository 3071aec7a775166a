"""REPORT.md, its figures and summary.json: a pure function of the run directory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema

from common import (
    accuracy_report,
    accuracy_summary,
    identity,
    identity_report,
    run,
    speed,
    speed_report,
)
from common.errors import RigError

SUMMARY = "summary.json"
REPORT = "REPORT.md"
SCHEMAS = Path(__file__).parent / "schemas"
# What is made of a run directory, per kind of measurement.
SUMMARISE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "speed": speed.summarise,
    "accuracy": accuracy_summary.summarise,
    "identity": identity.summarise,
}
RENDER: dict[str, Callable[[dict[str, Any], dict[str, Any], Path], str]] = {
    "speed": speed_report.render,
    "accuracy": accuracy_report.render,
    "identity": identity_report.render,
}
ANSWER: dict[str, Callable[[dict[str, Any], dict[str, Any]], str]] = {
    "speed": speed_report.answer,
    "accuracy": accuracy_report.answer,
    "identity": identity_report.answer,
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
    text = RENDER[what](summary, manifest, folder)
    (folder / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    (folder / REPORT).write_text(text, encoding="utf-8")
    return folder / REPORT


def answer(folder: Path) -> str:
    """The report's answer in one sentence, from its summary.json."""
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return ANSWER[summary["what"]](summary, run.read_manifest(folder))


def check(summary: dict[str, Any]) -> None:
    """Hold a summary to its schema. Raises jsonschema.ValidationError."""
    schema = json.loads((SCHEMAS / f"{summary['what']}-{summary['schema']}.json").read_text())
    jsonschema.validate(summary, schema)
