"""What goes on: which run, under what, and what is passed over or set aside on the way."""

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common import report
from common.errors import RigError
from common.measure import resume, run
from common.rig import Rig
from scripts import report as report_script
from tests.conftest import Run
from tests.helpers.runs import MADE, SPEED, copied
from tests.measure.test_run import line, read

SETTINGS: dict[str, Any] = {
    **MADE,
    "settings": {"PORT": "1", "HOST": "127.0.0.1", "CTX_SIZE": "8"},
    "environment": {"OMP_NUM_THREADS": "2"},
}


def resumed(rig: Rig, manifest: dict[str, Any], out: Path | None = None) -> tuple[Path, list[str]]:
    """The folder that goes on, and what was said."""
    said: list[str] = []
    return resume.resume(rig, "speed", manifest, out, said.append).folder, said


@pytest.mark.parametrize("key", ["cpu", "cores", "memory_gib", "kernel"])
def test_another_host_is_refused_by_name(tiny: Rig, key: str) -> None:
    run.create(tiny, "speed", SETTINGS)
    other = {**SETTINGS, "host": {**SETTINGS["host"], key: "another"}}
    with pytest.raises(RigError, match=f"started on another host.*{key} was .* is now 'another'"):
        resumed(tiny, other)


def test_another_driver_is_refused_by_name(tiny: Rig) -> None:
    card = {"name": "L4", "driver": "1", "cuda": None, "memory_mib": 1, "power_limit_w": None}
    with_card = {**SETTINGS, "card": {**card, "vbios": None, "compute_capability": None}}
    run.create(tiny, "speed", with_card)
    with pytest.raises(RigError, match="another host, or another system: driver was '1', is now"):
        resumed(tiny, {**with_card, "card": {**with_card["card"], "driver": "2"}})


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"OMP_NUM_THREADS": "4"}, "OMP_NUM_THREADS was '2', is now '4'"),
        ({}, "OMP_NUM_THREADS was '2', is now None"),
        (
            {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "1"},
            "CUDA_VISIBLE_DEVICES was None, is now '1'",
        ),
    ],
)
def test_other_variables_that_decide_speed_are_refused_by_name(
    tiny: Rig, now: dict[str, str], said: str
) -> None:
    run.create(tiny, "speed", SETTINGS)
    with pytest.raises(RigError, match=said):
        resumed(tiny, {**SETTINGS, "environment": now})


def test_a_run_of_before_they_were_noted_goes_on(tiny: Rig) -> None:
    old = {key: value for key, value in SETTINGS.items() if key != "environment"}
    begun = run.create(tiny, "speed", old)
    assert resumed(tiny, SETTINGS)[0] == begun.folder


def test_another_port_and_address_are_free(tiny: Rig) -> None:
    begun = run.create(tiny, "speed", SETTINGS)
    moved = {**SETTINGS["settings"], "PORT": "2", "HOST": "::1"}
    assert resumed(tiny, {**SETTINGS, "settings": moved})[0] == begun.folder


def test_a_run_with_trials_goes_before_a_newer_one_without(tiny: Rig) -> None:
    first = run.create(tiny, "speed", SETTINGS)
    first.append(run.JOURNAL, line(1))
    run.create(tiny, "speed", SETTINGS)
    assert resumed(tiny, SETTINGS)[0] == first.folder


@pytest.mark.parametrize("manifest", [None, "", "null", "[]", '{"ended": null}'])
def test_a_folder_without_a_manifest_is_passed_over_and_named(
    tiny: Rig, manifest: str | None
) -> None:
    begun = run.create(tiny, "speed", SETTINGS)
    broken = run.create(tiny, "speed", SETTINGS).folder
    (broken / run.MANIFEST).unlink()
    if manifest is not None:
        (broken / run.MANIFEST).write_text(manifest)
    folder, said = resumed(tiny, SETTINGS)
    assert folder == begun.folder
    assert len(said) == 1
    assert said[0].startswith(f"passed over: {broken}")


def test_a_name_in_use_by_anything_is_left_alone(tiny: Rig) -> None:
    first = run.create(tiny, "speed", SETTINGS).folder
    first.with_name(f"{first.name}-2").write_text("a file")
    first.with_name(f"{first.name}-3").symlink_to("nowhere")
    assert run.create(tiny, "speed", SETTINGS).folder.name == f"{first.name}-4"
    assert sorted(path.name for path in first.parent.glob(".new-*")) == []


def _create(rig: Rig, number: int, told: "multiprocessing.Queue[Any]") -> None:
    folder = run.create(rig, "speed", {**SETTINGS, "engine_title": str(number)}).folder
    told.put((str(folder), number))


def test_runs_begun_at_one_moment_have_a_folder_each(tiny: Rig) -> None:
    fork = multiprocessing.get_context("fork")
    told: multiprocessing.Queue[Any] = fork.Queue()
    begun = [fork.Process(target=_create, args=(tiny, number, told)) for number in range(8)]
    for process in begun:
        process.start()
    found = [told.get() for _ in begun]
    for process in begun:
        process.join()
    assert len({folder for folder, _ in found}) == 8
    for folder, number in found:
        assert run.read_manifest(Path(folder))["engine_title"] == str(number)


DAMAGE = {
    "cut": lambda data: data[:40],
    "nul": lambda data: b"\0" * len(data),
    "no keys": lambda _data: b"{}",
    "no UTF-8": lambda data: data[:6] + b"\xff" + data[7:],
    "a bit of a key": lambda data: data.replace(b'"failed"', b'"gailed"'),
    "no number": lambda data: data.replace(b'"failed": null', b'"failed": NaN'),
    "deep": lambda _data: b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("versioned", [True, False])
def test_a_damaged_line_is_set_aside_and_the_rest_goes_on(
    tiny: Rig, damage: Callable[[bytes], bytes], versioned: bool
) -> None:
    begun = run.create(tiny, "speed", SETTINGS)
    for number in (1, 2, 3):
        begun.append(run.JOURNAL, line(number))
    path = begun.folder / run.JOURNAL
    if not versioned:
        path.write_bytes(path.read_bytes().replace(b'"version": 1, ', b""))
    first, second, third, _end = path.read_bytes().split(b"\n")
    bad = damage(second)
    path.write_bytes(b"\n".join([first, bad, third, b""]))
    with pytest.raises(run.DamagedError, match=r"samples\.jsonl, line 2 is damaged.*SET_ASIDE=1"):
        read(begun.folder)
    folder, said = resumed(tiny, SETTINGS)
    assert said == [f"damaged: {path}, line 2; set aside in samples.damaged.jsonl"]
    assert read(folder) == [1, 3]
    assert (folder / "samples.damaged.jsonl").read_bytes() == bad + b"\n"
    assert resumed(tiny, SETTINGS)[1] == []


def test_a_line_of_a_newer_version_is_not_set_aside(tiny: Rig) -> None:
    begun = run.create(tiny, "speed", SETTINGS)
    path = begun.folder / run.JOURNAL
    path.write_text(json.dumps({**line(1), "version": 2}) + "\n")
    before = path.read_bytes()
    with pytest.raises(RigError, match="is of version 2"):
        resumed(tiny, SETTINGS)
    assert path.read_bytes() == before


def test_a_report_names_the_line_and_sets_it_aside_when_asked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(SPEED, tmp_path / "run")
    journal = folder / "samples.jsonl"
    lines = journal.read_bytes().split(b"\n")
    lines[1] = lines[1][:50]
    journal.write_bytes(b"\n".join(lines))
    script = SimpleNamespace(folder=folder)
    code, _out, err = run(report_script.body, script)
    assert (code, err.count("\n")) == (1, 1)
    assert "samples.jsonl, line 2 is damaged" in err
    assert f"make report RUN={folder} SET_ASIDE=1" in err
    monkeypatch.setenv("SET_ASIDE", "1")
    code, out, err = run(report_script.body, script)
    assert (code, err) == (0, "")
    assert f"damaged: {journal}, line 2; set aside in samples.damaged.jsonl" in out
    assert (folder / report.REPORT).is_file()
