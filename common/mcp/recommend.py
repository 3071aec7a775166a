"""Recommend: what a rig's finished runs say about a workload."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from common import kinds, report
from common.errors import RigError
from common.mcp.answers import Finding, Recommendation
from common.measure.journal import Manifest
from common.measure.kind import Kind, Summary
from common.measure.run import fits, read_manifest
from common.rig import Rig

Workload = Literal["chat", "documents", "many"]


def recommend(rig: Rig, workload: Workload) -> Recommendation:
    """The newest finished tune run's recommendation for this workload.

    Without one, what the newest finished measurement of it found: then `changes` is None, since a
    setting picked from a table was never tried on prompts that did not choose it.
    """
    for folder, summary in _finished(rig, "tune"):
        told = summary.get("recommendation") or {}
        if told.get("workload") == workload:
            return Recommendation(
                workload=workload,
                run=folder.name,
                changes=told["changes"],
                speed_up=told["speed_up"],
                findings=[],
                reason=told["reason"],
            )
    speaking = [kind for kind in kinds.KINDS if workload in kind.speaks_of]
    for kind in speaking:
        for folder, summary in _finished(rig, kind.name):
            with fits(folder):
                findings = _findings(kind, summary, read_manifest(folder))
            if findings:
                return _found(workload, folder, summary, findings)
    return Recommendation(
        workload=workload,
        run=None,
        changes=None,
        speed_up=None,
        findings=[],
        reason=f"nothing was measured yet that speaks of {workload}; start_measurement with tune "
        f"finds the best setting, {speaking[0].name} is the shorter look",
    )


def answer(folder: Path) -> str | None:
    """The answer of a run's report in one sentence; None if it has none that can be read."""
    try:
        return report.answer(folder)
    except RigError:
        return None


def _found(
    workload: Workload, folder: Path, summary: dict[str, Any], findings: list[Finding]
) -> Recommendation:
    quick = " It was a quick look." if summary["quick"] else ""
    return Recommendation(
        workload=workload,
        run=folder.name,
        changes=None,
        speed_up=None,
        findings=findings,
        reason=f"{answer(folder)}{quick} No tune run of {workload} is there, which would "
        "confirm a setting on prompts not used to choose it: start_measurement with tune",
    )


def _finished(rig: Rig, kind: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Finished runs of a kind with their summaries: full ones before quick ones, newest first."""
    found = []
    for folder in rig.runs_folder.glob(f"*-{kind}-*"):
        try:
            manifest = read_manifest(folder)
            summary = report.read_summary(folder)
        except RigError:  # list_runs names it
            continue
        if manifest["what"] == kind and manifest["ended"]:
            found.append((not summary.get("quick"), manifest["started"], folder, summary))
    for _full, _when, folder, summary in sorted(found, key=lambda entry: entry[:3], reverse=True):
        yield folder, summary


def _findings(kind: Kind, summary: Summary, manifest: Manifest) -> list[Finding]:
    """Every speed-up over no drafter that the run has, greedy where it has both."""
    return [
        Finding(
            where=row["place"] or "short prompts",
            setting=row["arm"],
            speed_up=row["value"],
            low=row["low"],
            high=row["high"],
            verdict=row["verdict"] or "unknown",
        )
        for row in kind.figures(summary, manifest)
        if row["quantity"] == "speed_up" and "temperature" not in row["place"]
    ]
