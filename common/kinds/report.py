"""REPORT.md, its figures and summary.json: a pure function of the run directory."""

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema

from common.errors import RigError
from common.measure import run

SUMMARY = run.SUMMARY
REPORT = "REPORT.md"
# Per kind of measurement the modules, below common, that make its summary and its report. They are
# imported when one is made: what all of them need together takes a second to load.
KINDS = {
    "speed": ("speed.plan", "speed.report"),
    "longctx": ("longctx.plan", "longctx.report"),
    "sweep": ("sweep.plan", "sweep.report"),
    "longmixed": ("sweep.plan", "sweep.report"),
    "bench-client": ("bench_client.summary", "bench_client.report"),
    "accuracy": ("accuracy.summary", "accuracy.report"),
    "identity": ("identity.plan", "identity.report"),
    "formats": ("formats.plan", "formats.report"),
    "cost": ("cost.plan", "cost.report"),
    "builds": ("builds.plan", "builds.report"),
    "tune": ("tune.summary", "tune.report"),
    "bench-repack": ("bench_repack.report", "bench_repack.report"),
}


def summarise(folder: Path) -> dict[str, Any]:
    """Every figure of the report, from the run directory alone; its kind must be in KINDS."""
    summary, _ = KINDS[run.read_manifest(folder)["what"]]
    return dict(import_module(f"common.kinds.{summary}").summarise(folder))


def write(folder: Path) -> Path:
    """Make summary.json, the figures and REPORT.md; returns the report's path.

    Raises RigError if `folder` is not a run directory, or holds no finished trial.
    """
    manifest = run.read_manifest(folder)
    what = manifest["what"]
    if what not in KINDS:
        raise RigError(f"{folder}: there is no report for a run of kind {what!r}")
    if not any(line["failed"] is None for line in run.read_lines(folder, run.JOURNAL)):
        raise RigError(f"{folder} holds no finished trial, so there is nothing to report yet")
    summary = summarise(folder)
    check(summary)
    text = _of(what).render(summary, manifest, folder)
    (folder / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    (folder / REPORT).write_text(text, encoding="utf-8")
    return folder / REPORT


def answer(folder: Path) -> str:
    """The report's answer in one sentence, from its summary.json."""
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return in_words(summary, run.read_manifest(folder))


def in_words(summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    """The answer that this summary gives, in one sentence."""
    return str(_of(summary["what"]).answer(summary, manifest))


def schema(what: str, version: object) -> Path:
    """Where the schema of a kind's summary lies, as far as this version knows it."""
    return Path(__file__).parent / KINDS[what][0].split(".")[0] / f"{what}-{version}.json"


def check(summary: dict[str, Any]) -> None:
    """Hold a summary to its schema. Raises jsonschema.ValidationError."""
    found = json.loads(schema(summary["what"], summary["schema"]).read_text())
    jsonschema.validate(summary, found)


def _of(what: str) -> ModuleType:
    return import_module(f"common.kinds.{KINDS[what][1]}")
