"""REPORT.md, its figures, REPORT.html and summary.json: a pure function of the run directory."""

import json
from pathlib import Path
from typing import Any

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
    with run.fits(folder):
        summary = kind.summarise(folder)
        kind.check(summary)
        try:
            text = kind.render(summary, manifest, folder)
            html = markdown.document(text, folder)
            atomic.write(folder / SUMMARY, json.dumps(summary, indent=1) + "\n")
            atomic.write(folder / REPORT, text)
            atomic.write(folder / HTML, html)
            if manifest["ended"]:
                written.note(folder)
        except OSError as error:
            raise RigError(
                f"the report in {folder} cannot be written: {error.strerror or error}",
                fix=f"make room or give permission there, then make report RUN={folder}",
            ) from None
    return folder / REPORT


def read_summary(folder: Path) -> dict[str, Any]:
    """summary.json of a run, held to its schema. Raises RigError."""
    path = folder / SUMMARY
    try:
        found = run.parsed(run.content(path))
        kinds.of(found["what"]).check(found)
    except (OSError, *run.ODD, RigError) as error:
        raise RigError(
            f"{path} cannot be read: {error}", fix=f"make it again: make report RUN={folder}"
        ) from None
    return dict(found)


def answer(folder: Path) -> str:
    """The report's answer in one sentence, from its summary.json. Raises RigError."""
    summary, manifest = read_summary(folder), run.read_manifest(folder)
    with run.fits(folder):
        return kinds.of(summary["what"]).answer(summary, manifest)
