"""Reports: the same bytes from the same run directory, held to a schema."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from common import kinds, report
from common.errors import RigError
from common.measure import run
from common.rig import ROOT
from tests.helpers.runs import SPEED


def committed() -> list[Path]:
    """The run directories that git knows; one's own runs are nobody's business."""
    command = ["git", "-C", str(ROOT), "ls-files", "*/benchmarks/runs/*/REPORT.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [(ROOT / line).parent for line in done.stdout.splitlines()]


RUNS = committed()


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_every_committed_report_is_made_again_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    made = [report.SUMMARY, report.REPORT, *(f"figures/{p.name}" for p in folder.glob("figures/*"))]
    if (folder / report.HTML).is_file():
        made.append(report.HTML)
    for name in made:
        (copy / name).unlink()
    report.write(copy)
    for name in made:
        assert (copy / name).read_bytes() == (folder / name).read_bytes(), name


def test_there_are_committed_reports() -> None:
    rigs = {folder.parents[2].name for folder in RUNS}
    assert {"local-llamacpp-cpu-tiny-q4_0", "local-llamacpp-cpu-270m-q4_k_m"} <= rigs


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_committed_run_was_made_by_committed_code(folder: Path) -> None:
    manifest = run.read_manifest(folder)
    assert manifest["harness"]["dirty"] is False
    assert manifest["ended"] is not None


def test_the_schema_forbids_what_it_does_not_know() -> None:
    speed = next(folder for folder in RUNS if "-speed-" in folder.name)
    summary = json.loads((speed / report.SUMMARY).read_text())
    kinds.of("speed").check(summary)
    with pytest.raises(RigError, match="not as its schema says"):
        kinds.of("speed").check({**summary, "note": "hello"})
    summary["arms"][0]["tokens_per_second"] = "fast"
    with pytest.raises(RigError, match="not as its schema says"):
        kinds.of("speed").check(summary)


def test_an_empty_run_has_no_report(tmp_path: Path) -> None:
    manifest = {**run.read_manifest(SPEED), "ended": None}
    (tmp_path / run.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(RigError, match="no finished trial"):
        report.write(tmp_path)
    (tmp_path / run.MANIFEST).write_text(json.dumps({**manifest, "what": "tea"}))
    with pytest.raises(RigError, match="no report for a run of kind 'tea'"):
        report.write(tmp_path)
