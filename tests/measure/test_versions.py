"""Versions of a run's files: every committed line holds to its schema, and a newer one is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from common.compare import compare
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.measure import run
from common.measure.log import Log
from common.rig import Rig
from scripts import measure
from tests.conftest import Run
from tests.helpers.runs import SPEED, check, copied
from tests.scripts.test_measuring import Fake, run_of
from tests.test_report import RUNS

LINES = (run.JOURNAL, run.STARTS)


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_committed_runs_hold_to_the_schemas(folder: Path) -> None:
    check(run.MANIFEST, run.read_manifest(folder))
    for name in LINES:
        check(name, *run.read_lines(folder, name))


@pytest.fixture
def new(tiny: Rig, fake: Fake, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was just measured."""
    assert isinstance(fake(), Engine)
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setenv("SPEED_N_MAX", "2")
    code, _out, err = run(measure.body, tiny, "speed")
    assert code == 0, err
    return run_of(tiny)


def test_a_new_run_says_its_versions_and_holds_to_the_schemas(new: Path) -> None:
    lines = {name: run.read_lines(new, name) for name in LINES}
    wholes = {name: json.loads((new / name).read_text()) for name in (run.MANIFEST, run.WRITTEN)}
    for name, found in (*lines.items(), *((name, [whole]) for name, whole in wholes.items())):
        assert found
        assert {one["version"] for one in found} == {run.VERSIONS[name]}
        check(name, *found)


def test_the_schemas_forbid_what_they_do_not_know() -> None:
    manifest: Any = run.read_manifest(SPEED)
    for name, found in (
        (run.MANIFEST, manifest),
        *((name, run.read_lines(SPEED, name)[0]) for name in LINES),
    ):
        check(name, {**found, "version": 1})
        for changed in ({**found, "note": "hello"}, {**found, "version": 2}):
            with pytest.raises(RigError):
                check(name, changed)
    manifest["plan"]["note"] = "hello"
    with pytest.raises(RigError):
        check(run.MANIFEST, manifest)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copied(SPEED, tmp_path / "copy")


def test_a_newer_line_is_refused_by_name(copy: Path) -> None:
    for name in LINES:
        path = copy / name
        before = path.read_text()
        first, second, *rest = before.splitlines()
        newer = json.dumps({**json.loads(second), "version": 2})
        path.write_text("\n".join([first, newer, *rest]) + "\n")
        with pytest.raises(RigError) as caught:
            compare.compare([copy])
        assert str(caught.value) == (
            f"{path}, line 2 is of version 2, which this version of the project does not know; "
            "update it"
        )
        path.write_text(before)
    assert compare.compare([copy])["runs"]


def test_a_newer_manifest_is_refused_by_name(copy: Path) -> None:
    manifest = run.read_manifest(copy)
    (copy / run.MANIFEST).write_text(json.dumps({**manifest, "version": 2}))
    with pytest.raises(RigError, match=r"manifest\.json is of version 2, which .*; update it$"):
        compare.compare([copy])


@pytest.mark.parametrize("damage", ["", '{"a": ', "5", '"words"', "\udcff"])
def test_a_damaged_line_is_named(copy: Path, damage: str) -> None:
    path = copy / run.JOURNAL
    lines = path.read_text().splitlines()
    lines[2] = damage
    path.write_text("\n".join(lines) + "\n", errors="surrogateescape")
    with pytest.raises(RigError, match=r"samples\.jsonl, line 3 is damaged"):
        run.read_lines(copy, run.JOURNAL)


@pytest.mark.parametrize("text", ["5", "[]", "{", '"words"'])
def test_a_damaged_manifest_is_named(copy: Path, text: str) -> None:
    (copy / run.MANIFEST).write_text(text)
    with pytest.raises(RigError, match=r"manifest\.json is damaged"):
        run.read_manifest(copy)


def test_what_does_not_hold_to_its_type_is_named(copy: Path) -> None:
    path = copy / run.JOURNAL
    line = {**run.read_lines(copy, run.JOURNAL)[0], "note": "hello"}
    path.write_text(json.dumps({**line, "version": 1}) + "\n")
    with pytest.raises(RigError, match=r"line 1 is damaged \(.*note is not as its schema says"):
        run.read_lines(copy, run.JOURNAL)
    old = {key: value for key, value in line.items() if key not in ("version", "note")}
    path.write_text(json.dumps(old) + "\n")
    assert run.read_lines(copy, run.JOURNAL) == [old]
    path.write_text(json.dumps({**old, "note": "hello"}) + "\n")
    with pytest.raises(RigError, match=r"line 1 is damaged \(.*note is not as its schema says"):
        run.read_lines(copy, run.JOURNAL)


def test_every_kind_of_file_has_a_type() -> None:
    assert run.TYPES.keys() == run.VERSIONS.keys()


def test_a_journal_that_holds_a_trial_twice_is_refused(tmp_path: Path) -> None:
    folder = copied(SPEED, tmp_path / "run")
    journal = folder / run.JOURNAL
    journal.write_text(journal.read_text() * 2)
    with pytest.raises(RigError, match=r"holds greedy-1 of .* twice"):
        Log(folder)
