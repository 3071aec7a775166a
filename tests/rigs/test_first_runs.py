"""First runs: budget, failures, going on and the archive; make and card are stand-ins."""

import shutil
import signal
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common import places, rig
from common.engines.llamacpp import compiling, jobs
from common.errors import RigError
from common.files import hub
from common.measure import resume, run
from common.rig import ROOT
from common.rigs import first_runs, timed
from common.rigs.cards import CARDS, Card
from common.rigs.first_runs import MINUTES, RESERVE, SOURCE, Session, Step
from scripts import first_runs as script
from tests.helpers import rig_rules
from tests.helpers.borrowed_host import Host
from tests.rigs.test_cards import in_host
from tests.rigs.test_new_rig import copy_of_the_tree

L4 = CARDS["l4"]
TINY, SMALL, LARGE = (f"local-llamacpp-l4-{size}-q4_0" for size in ("tiny", "2b", "4b"))
CORES = 16
ENGINE = SOURCE + compiling.CUDA_CORE_MINUTES / CORES


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    stand = tmp_path / "stand"
    stand.mkdir()
    program = stand / "make"
    program.write_text(
        f"#!{sys.executable} -S\n" + (ROOT / "tests" / "helpers" / "stand_in_make.py").read_text()
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand}:/usr/bin:/bin")
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(jobs, "jobs", lambda _backend: CORES)
    monkeypatch.setattr(timed, "LOOK_S", 0.02)
    in_host(monkeypatch, ("NVIDIA L4", L4.memory_mib, L4.capability))
    before = signal.getsignal(signal.SIGHUP)
    yield Host(copy_of_the_tree(tmp_path / "tree"), stand)
    assert signal.getsignal(signal.SIGHUP) == before


def files_are_there(*sizes: str) -> None:
    """The model files of these sizes, as far as anybody looks at them here."""
    for name in (f"gemma-4-E{size[0]}B-it" for size in sizes):
        for end in ("-q4_0-exact.gguf", "-qat-assistant-q4_0-exact.gguf"):
            path = places.model_file(f"{name}{end}")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"GGUF")


def rows(out: str) -> dict[str, str]:
    """What the table at the end says of each step: its first column, and its last."""
    heads, widths, *table = out[out.rindex("step          minutes") :].splitlines()
    first, last = widths.index(" "), heads.index("result")
    return {line[:first].strip(): line[last:] for line in table[: table.index("")]}


def test_without_model_files_all_else_is_done(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    assert host.first_runs() == 0
    assert host.calls() == [
        f"{TINY} engine RUNNER=host",
        f"{TINY} speed RUNNER=host",
        f"{SMALL} cost RUNNER=host",
        f"{LARGE} cost RUNNER=host",
    ]
    said = capsys.readouterr().out
    for name in (TINY, SMALL, LARGE):
        assert f"made {name}; nothing of it has been measured" in said
        rig.load(host.root / name, {})
    assert "none of them has been measured on a card" in said
    table = rows(said)
    done = ["engine", "known answer", "cost 2b", "cost 4b"]
    assert [table[name] for name in done] == ["done"] * 4
    for size in ("2b", "4b"):
        assert table[f"files {size}"].startswith("skipped: no model files: xbill9/gemma-4-E")
        assert "127.0.0.1:9 cannot be asked for" in table[f"files {size}"]
        assert table[f"speed {size}"] == table[f"sweep {size}"] == f"skipped: needs files {size}"


def test_the_archive_lands_in_its_places(
    host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert host.first_runs() == 0
    names = host.archive()
    for place in (f"{TINY}/benchmarks/runs/2026-12-01-speed-l4", f"{LARGE}/benchmarks/runs"):
        assert any(name.startswith(place) for name in names)
    assert f"{TINY}/benchmarks/runs/2026-12-01-speed-l4/logs/none.log" in names
    assert not [name for name in names if name.endswith(("run.lock", "tpu.env"))]
    (log,) = [name for name in names if "/" not in name]
    home = tmp_path / "home"
    (home / TINY).mkdir(parents=True)
    (path,) = host.root.glob("*.tar.gz")
    with tarfile.open(path) as opened:
        opened.extractall(home, filter="data")
    said = capsys.readouterr().out
    assert (home / log).read_text() in said
    assert f"tar -xzkf {path.name}" in said
    assert f"{path.stat().st_size / 1e3:.0f} kB; run directories in it: 3" in said
    found = sorted(home.glob("*/benchmarks/runs/*"))
    assert [run.read_manifest(folder)["what"] for folder in found] == ["cost", "cost", "speed"]


def test_what_does_not_fit_the_minutes_is_quick_or_skipped(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    files_are_there("2b")
    host.does(engine={"minutes": 9}, speed={"minutes": 2}, cost={"minutes": 5})
    assert host.first_runs(30) == 0
    assert host.calls() == [
        f"{TINY} engine RUNNER=host",
        f"{TINY} speed RUNNER=host",
        f"{SMALL} cost RUNNER=host QUICK=1",
        f"{LARGE} cost RUNNER=host QUICK=1",
        f"{SMALL} speed RUNNER=host QUICK=1",
    ]
    said = capsys.readouterr().out
    assert "cost 2b: about 4 min as a quick look (an estimate), 18 min left" in said
    table = rows(said)
    assert table["cost 2b"] == "done (quick)"
    assert table["files 2b"] == "there already"
    assert table["sweep 2b"] == "skipped: about 10 min, 6 min left"
    assert "speed 2b: done (quick), 2.0 min" in said


def test_too_few_minutes_for_the_engine(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert host.first_runs(ENGINE + RESERVE - 1) == 0
    assert host.calls() == []
    table = rows(capsys.readouterr().out)
    assert table["engine"] == f"skipped: about {ENGINE:.0f} min, {ENGINE - 1:.0f} min left"
    assert table["cost 4b"] == "skipped: needs engine"
    assert len(host.archive()) == 1


@pytest.mark.parametrize(
    ("left", "of_later", "quick"),
    [(10, 0, False), (9.9, 0, True), (14, 4, False), (13.9, 4, True), (10, 40, False)],
)
def test_in_full_where_all_that_follows_still_has_its_quick_form(
    tmp_path: Path, left: float, of_later: float, quick: bool
) -> None:
    """What would not be done anyway holds nothing back."""
    said: list[str] = []
    session = Session(left + RESERVE, said.append, tmp_path, lambda: 0.0)
    step = Step("one", tmp_path, ("cost",), 10.0, 2.0)
    later = Step("two", tmp_path, ("speed",), 100.0, of_later) if of_later else None
    spare = session._spare(step, [later] if later else [])
    assert (step.full - step.least > spare) is quick


def test_what_needs_something_that_is_lost_holds_nothing_back(tmp_path: Path) -> None:
    session = Session(11, lambda _: None, tmp_path, lambda: 0.0)
    step = Step("one", tmp_path, ("cost",), 10.0, 2.0)
    files = Step("files", tmp_path, ("model",), 1.0, refusal="no network")
    later = [files, Step("two", tmp_path, ("speed",), 100.0, 5.0, needs=("files",))]
    assert session._spare(step, later) == 8


def test_a_failing_step_is_told_and_the_others_go_on(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ["measuring", "error: CUDA error: no kernel image", "make: *** [speed] Error 1"]
    host.does(**{f"cost {SMALL}": {"code": 2, "says": error, "begins": True}})
    assert host.first_runs() == 1
    assert f"{LARGE} cost RUNNER=host" in host.calls()[-1]
    table = rows(capsys.readouterr().out)
    assert table["cost 2b"] == "failed: CUDA error: no kernel image"
    assert table["cost 4b"].startswith("done")
    # What it had measured comes home too.
    assert f"{SMALL}/benchmarks/runs/2026-12-01-cost-l4/samples.jsonl" in host.archive()


def test_without_an_engine_nothing_else_is_tried(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.does(engine={"code": 2, "says": ["error: nvcc is missing"]})
    assert host.first_runs() == 1
    assert host.calls() == [f"{TINY} engine RUNNER=host"]
    table = rows(capsys.readouterr().out)
    assert table["engine"] == "failed: nvcc is missing"
    assert table["known answer"] == "skipped: needs engine"
    (log,) = host.archive()
    assert log.endswith(".log")


def test_another_answer_than_the_known_one_is_a_failure(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.does(speed={"equal": False})
    assert host.first_runs() == 1
    table = rows(capsys.readouterr().out)
    assert table["known answer"] == "NOT what was worked out on paper"
    assert table["cost 2b"] == "done"


def test_a_measurement_that_leaves_no_run_is_a_failure(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.does(cost={"leaves_nothing": True})
    assert host.first_runs() == 1
    table = rows(capsys.readouterr().out)
    assert table["cost 2b"] == "failed: it left no finished run directory"


def test_a_step_that_takes_too_long_is_ended_in_order(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.does(**{f"cost {SMALL}": {"minutes": 60, "hangs": True}})
    assert host.first_runs() == 0
    table = rows(capsys.readouterr().out)
    assert table["cost 2b"] == "stopped: the minutes were over"
    assert table["cost 4b"] == "skipped: about 6 min, less than 1 min left"
    assert len(host.calls()) == 3
    assert f"{SMALL}/benchmarks/runs/2026-12-01-cost-l4/manifest.json" in host.archive()


def test_ctrl_c_leaves_an_archive_and_the_next_call_goes_on(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.does(**{f"cost {SMALL}": {"sends": signal.SIGINT}})
    assert host.first_runs() == 130
    host.calls()
    said = capsys.readouterr()
    table = rows(said.out)
    assert list(table) == ["engine", "known answer", "cost 2b"]
    assert table["cost 2b"] == "stopped"
    assert said.err == "stopped\n"
    unfinished = f"{SMALL}/benchmarks/runs/2026-12-01-cost-l4"
    assert run.read_manifest(host.root / unfinished)["ended"] is None
    assert f"{unfinished}/manifest.json" in host.archive()
    host.does()
    assert host.first_runs() == 0
    assert host.calls() == [
        f"{TINY} engine RUNNER=host",
        f"{SMALL} cost RUNNER=host RESUME=1",
        f"{LARGE} cost RUNNER=host",
    ]
    said = capsys.readouterr()
    assert "made local" not in said.out
    assert rows(said.out)["known answer"] == "there already"
    assert run.read_manifest(host.root / unfinished)["ended"]
    assert sum(name.endswith("manifest.json") for name in host.archive()) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_that_goes_and_a_kill_leave_an_archive_too(
    host: Host, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    host.does(cost={"sends": number})
    assert host.first_runs() == 143
    assert rows(capsys.readouterr().out)["cost 2b"] == "stopped"
    assert f"{SMALL}/benchmarks/runs/2026-12-01-cost-l4/manifest.json" in host.archive()


def test_what_cannot_go_on_here_is_measured_anew(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.does(cost={"sends": signal.SIGINT})
    assert host.first_runs() == 130
    host.calls()
    refusal = f"error: it was started on another host: cores was 8, is now 16; {resume.ANEW}"
    host.does(cost={"refuses_to_go_on": refusal})
    assert host.first_runs() == 0
    assert host.calls()[1:3] == [f"{SMALL} cost RUNNER=host RESUME=1", f"{SMALL} cost RUNNER=host"]
    assert rows(capsys.readouterr().out)["cost 2b"] == "done"
    assert f"{SMALL}/benchmarks/runs/2026-12-01-cost-l4-2/manifest.json" in host.archive()


def test_an_unfinished_run_of_the_other_form_is_not_gone_on_with(host: Host) -> None:
    host.does(cost={"sends": signal.SIGINT})
    assert host.first_runs() == 130
    host.does()
    host.calls()
    assert host.first_runs(ENGINE + RESERVE + 4) == 0
    assert host.calls()[1] == f"{SMALL} cost RUNNER=host QUICK=1"


def test_the_hub_says_how_much_there_is_to_fetch(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def glance(file: hub.HubFile) -> hub.Remote:
        size = 3_000_000_000 if "assistant" not in file.name else 600_000_000
        return hub.Remote(file, "", size, None, None)

    monkeypatch.setattr(hub, "glance", glance)
    assert host.first_runs(1000) == 0
    calls = host.calls()
    assert f"{SMALL} model draft RUNNER=host" in calls
    assert calls[-1] == f"{LARGE} sweep RUNNER=host"
    assert "files 2b: about 3 min (an estimate)" in capsys.readouterr().out


def test_settings_of_the_caller_do_not_reach_the_steps_but_those_of_a_rig_do(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setenv("RESUME", "1")
    monkeypatch.setenv("MAKEFLAGS", "-n")
    monkeypatch.setenv("PORT", "9000")
    program = host.stand / "make"
    program.write_text(f'#!/bin/sh\nenv > "{host.stand}/environment"\nexit 2\n')
    assert host.first_runs() == 1
    told = dict(
        line.partition("=")[::2] for line in (host.stand / "environment").read_text().splitlines()
    )
    assert told["PORT"] == "9000"
    assert not told.keys() & {"QUICK", "RESUME", "MAKEFLAGS"}


def test_a_small_card_has_no_steps_for_what_does_not_fit(host: Host) -> None:
    card = Card("NVIDIA L4", 3000, (8, 9), "Ada AD104", from_nvml=True)
    found = first_runs.rigs(card, lambda _: None, host.root)
    todo = first_runs.steps(found)
    refused = {step.name: step.refusal for step in todo if step.name.startswith("cost")}
    assert refused["cost 4b"].startswith("Gemma 4 E4B in Q4_0 does not fit the NVIDIA L4")
    assert "\n" not in refused["cost 4b"]
    assert not (host.root / LARGE).exists()


def test_a_rig_that_is_there_is_used_as_it_is(host: Host) -> None:
    first_runs.rigs(L4, lambda _: None, host.root)
    settings = host.root / SMALL / rig.FILE
    settings.write_text(settings.read_text().replace("PORT=8080", "PORT=9999"))
    readme = (host.root / "README.md").read_text()
    said: list[object] = []
    found = first_runs.rigs(L4, said.append, host.root)[SMALL.split("-")[3]]
    assert isinstance(found, rig.Rig)
    assert (found.port, said) == (9999, [])
    assert (host.root / "README.md").read_text() == readme


def test_there_is_an_estimate_of_every_step() -> None:
    for full, quick in MINUTES.values():
        assert 0 < quick < full


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--minutes", "soon"], "MINUTES=soon: expected a number of minutes"),
        (["--minutes", "nan"], "MINUTES=nan: expected"),
        (["--minutes", "1"], "MINUTES=1: expected"),
        (["--gpu", "NVIDIA H200"], "nothing to do here: GPU=NVIDIA H200 is not in this host"),
        (["--gpu", "x"], "this card is not known"),
    ],
)
def test_what_cannot_be_is_refused(host: Host, words: list[str], text: str) -> None:
    with pytest.raises(RigError) as caught:
        script.body(words, host.root, host.clock)
    assert text in str(caught.value)
    assert_nothing_was_done(host)


@pytest.mark.parametrize("driver", [True, False])
def test_without_a_card_there_is_nothing_to_do(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], driver: bool
) -> None:
    if driver:
        in_host(monkeypatch)
    else:

        def none() -> list[Any]:
            raise RigError("no NVIDIA card can be used on this host (NVML: none)")

        monkeypatch.setattr("common.host.card.cards", none)
    assert host.first_runs() == 1
    said = capsys.readouterr()
    assert said.err.startswith("error: nothing to do here: no NVIDIA card")
    assert (said.err.count("\n"), said.out) == (1, "")
    assert_nothing_was_done(host)


def assert_nothing_was_done(host: Host) -> None:
    assert host.calls() == []
    assert not list(host.root.glob("local-*"))
    assert not list(host.root.glob("first-runs-*"))
    assert (host.root / "README.md").read_bytes() == (ROOT / "README.md").read_bytes()


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this host has an NVIDIA card")
def test_make_says_so_too(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "tree")
    code, out, err = rig_rules.make(tree, "first-runs", "MINUTES=5", PYTHONPATH=str(tree))
    assert (code, out) == (2, "")
    assert "error: nothing to do here: no NVIDIA card can be used on this host" in err
