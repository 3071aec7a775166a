"""REPORT.md, its figures, REPORT.html and summary.json: a pure function of the run directory."""

import json
from pathlib import Path

from common import atomic, kinds
from common.errors import RigError
from common.measure import markdown, run, written

SUMMARY = run.SUMMARY
REPORT = "REPORT.md"
HTML = "REPORT.html"


def write(folder: Path) -> Path:
    """Make summary.json, the figures, REPORT.md and REPORT.html; returns the report's path.

    Of a finished run it is noted what its files are now, so that a later change shows. Raises
    RigError if `folder` is not a run directory, or holds no finished trial.
    """
    manifest = run.read_manifest(folder)
    if manifest["what"] not in kinds.NAMES:
        raise RigError(f"{folder}: there is no report for a run of kind {manifest['what']!r}")
    if not any(line["failed"] is None for line in run.read_lines(folder, run.JOURNAL)):
        raise RigError(f"{folder} holds no finished trial, so there is nothing to report yet")
    kind = kinds.of(manifest["what"])
    summary = kind.summarise(folder)
    kind.check(summary)
    text = kind.render(summary, manifest, folder)
    atomic.write(folder / SUMMARY, json.dumps(summary, indent=1) + "\n")
    (folder / REPORT).write_text(text, encoding="utf-8")
    (folder / HTML).write_text(markdown.document(text, folder), encoding="utf-8")
    if manifest["ended"]:
        written.note(folder)
    return folder / REPORT


def answer(folder: Path) -> str:
    """The report's answer in one sentence, from its summary.json."""
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return kinds.of(summary["what"]).answer(summary, run.read_manifest(folder))
