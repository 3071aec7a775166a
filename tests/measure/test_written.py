"""What is noted when a report is written: changed files are told from changed formulas."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common import report
from common.compare import compare, runs
from common.errors import RigError
from common.kinds.speed import summary as speed
from common.measure import run, written
from tests.helpers.runs import SPEED, change_summary, check, copied, on_card

Summary = Any


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    folder = copied(SPEED, tmp_path / "noted", on_card)
    report.write(folder)
    return folder


def formulas(monkeypatch: pytest.MonkeyPatch, change: Callable[[Summary], object]) -> None:
    """From now on speed summaries come out changed so."""
    before = speed.summarise

    def after(folder: Path) -> Summary:
        summary = before(folder)
        change(summary)
        return summary

    monkeypatch.setattr(speed, "summarise", after)


def faster(summary: Summary) -> None:
    summary["arms"][0]["tokens_per_second"] *= 1.01


def labels(folder: Path) -> list[str]:
    (one,) = compare.compare([folder])["runs"]
    return list(one["labels"])


def change_journal(folder: Path) -> None:
    path = folder / run.JOURNAL
    lines = run.read_lines(folder, run.JOURNAL)
    lines[0]["samples"][0]["predicted_per_second"] *= 2
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_finished_report_notes_its_files(noted: Path) -> None:
    check(run.WRITTEN, json.loads((noted / run.WRITTEN).read_text()))
    assert written.changed(noted) == []
    assert not any(runs.CHANGED in said for said in labels(noted))


def test_other_formulas_are_no_change_and_refuse_no_ratio(
    noted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copied(SPEED, tmp_path / "other")
    report.write(other)
    formulas(monkeypatch, faster)
    assert labels(noted)[0] == runs.OLDER
    (pair,) = compare.compare([noted, other])["pairs"]
    assert pair["refused"] == []
    assert pair["ratios"]


def test_a_changed_summary_is_one_whatever_the_formulas(
    noted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_summary(noted, faster)
    formulas(monkeypatch, faster)  # so that it is what the journal gives
    said = f"{runs.CHANGED}: summary.json no longer as written"
    assert labels(noted)[0] == said
    (pair,) = compare.compare([noted, copied(SPEED, tmp_path / "other")])["pairs"]
    assert pair["ratios"] == []
    assert said in pair["refused"][0]
    report.write(noted)  # the journal is as it was, so its report can be made again
    assert labels(noted)[0] != said


def test_a_changed_journal_stays_changed(noted: Path) -> None:
    change_journal(noted)
    report.write(noted)
    (said, *_) = labels(noted)
    assert said == f"{runs.CHANGED}: samples.jsonl, summary.json no longer as written"


def test_a_changed_manifest_is_said(noted: Path) -> None:
    manifest = run.read_manifest(noted)
    (noted / run.MANIFEST).write_text(json.dumps({**manifest, "wall_s": 1.0}))
    report.write(noted)
    assert "manifest.json" in labels(noted)[0]


def test_an_unfinished_run_is_not_noted_until_it_ends(tmp_path: Path) -> None:
    folder = copied(SPEED, tmp_path / "stopped", lambda manifest: manifest.update(ended=None))
    report.write(folder)
    assert written.changed(folder) is None
    manifest = run.read_manifest(folder)
    run.Run(folder, manifest).finish()
    change_journal(folder)  # as a run that goes on does
    report.write(folder)
    assert written.changed(folder) == []


def test_an_older_run_with_other_figures_counts_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = copied(SPEED, tmp_path / "older")
    formulas(monkeypatch, faster)
    assert labels(older)[0] == runs.NOT_GIVEN


def test_an_older_run_with_other_keys_alone_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, other = (copied(SPEED, tmp_path / name) for name in ("older", "other"))

    def more(summary: Summary) -> None:
        summary["arms"][0]["warmth"] = 1
        del summary["cells"][0]["kept"]

    formulas(monkeypatch, more)
    (said, *_) = labels(older)
    assert said == "made by another version: its summary alone has, or lacks, warmth, kept"
    (pair,) = compare.compare([older, other])["pairs"]
    assert pair["refused"] == []


def test_a_note_that_cannot_be_read(noted: Path, tmp_path: Path) -> None:
    for index, text in enumerate(["{", '{"version": 1}', '{"version": 1, "sha256": {}}']):
        folder = tmp_path / str(index)
        shutil.copytree(noted, folder)
        (folder / run.WRITTEN).write_text(text)
        with pytest.raises(RigError, match=r"written\.json is damaged"):
            compare.compare([folder])
    (noted / run.WRITTEN).write_text('{"version": 2}')
    with pytest.raises(RigError, match=r"written\.json is of version 2"):
        compare.compare([noted])
