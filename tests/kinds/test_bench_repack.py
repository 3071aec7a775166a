import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from common import report
from common.errors import RigError
from common.kinds.bench_repack import plan as repack_bench
from common.kinds.bench_repack.plan import (
    Figures,
    Timing,
    from_lines,
    make_inputs,
    measure,
    to_lines,
)
from common.rig import Rig
from common.weights.shapes import SHAPES
from scripts import bench_repack
from tests.helpers.run_script import run_script
from tests.weights.test_random_pair import SMALL

FIGURES = Figures(
    source_bytes=1_000_000_000,
    threads=2,
    exact=[
        Timing(0.9, 1, 0, 200_000_000),
        Timing(1.2, 1, 0, 300_000_000),
        Timing(0.6, 1, 0, 100_000_000),
    ],
    quantize=[Timing(0.8, 1, 0.2, 9), Timing(0.8, 1, 0.2, 9), Timing(0.8, 1, 0.2, 9)],
    inside_seconds=0.5,
    numpy_seconds=30.0,
)


@pytest.fixture
def quantize(tmp_path: Path) -> Path:
    """A stand-in for llama-quantize: checks its arguments and copies the file."""
    program = tmp_path / "llama-quantize"
    program.write_text('#!/bin/sh\n[ "$1 $4 $5" = "--pure q4_0 2" ] || exit 3\ncp "$2" "$3"\n')
    program.chmod(0o755)
    return program


def test_figures_by_hand() -> None:
    assert FIGURES.ratios == pytest.approx([0.9, 1.2, 0.6])
    assert FIGURES.ratio == pytest.approx(0.9)
    assert FIGURES.ratios_unsynced == pytest.approx([0.9 / 0.8, 1.2 / 0.8, 0.6 / 0.8])
    assert FIGURES.numpy_ratio == 60
    assert FIGURES.resident == 300_000_000
    assert FIGURES.meets_targets


@pytest.mark.parametrize(
    "worse",
    [
        {"exact": [Timing(1.1, 1, 0, 1)] * 3},
        {"exact": [Timing(0.5, 1, 0, 700_000_000)] * 3},
        {"numpy_seconds": 9.0},
    ],
)
def test_each_target_can_fail(worse: dict[str, object]) -> None:
    assert not Figures(**{**FIGURES.__dict__, **worse}).meets_targets


def test_measures_both_commands(
    tmp_path: Path, quantize: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repack_bench, "SHAPES", {**SHAPES, "small": SMALL})
    made: list[int] = []
    make_inputs(tmp_path / "work", 2, made.append, shape="small")
    assert sum(made) > 0
    again: list[int] = []
    make_inputs(tmp_path / "work", 2, again.append, shape="small")
    assert again == []
    figures = measure(tmp_path / "work", quantize, 2, 1)
    assert len(figures.exact) == len(figures.quantize) == 1
    assert figures.source_bytes == (tmp_path / "work/snapshot/model.safetensors").stat().st_size - (
        figures_header(tmp_path / "work/snapshot/model.safetensors")
    )
    assert figures.exact[0].resident > 50_000_000  # Python itself
    assert figures.exact[0].seconds > figures.quantize[0].seconds > 0
    assert figures.exact[0].cpu_seconds > 0
    left = {path.name for path in (tmp_path / "work").iterdir()}
    assert left == {"snapshot", "q8_0.gguf", "bf16.gguf"}


def figures_header(path: Path) -> int:
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def test_failing_command_is_named(
    tmp_path: Path, quantize: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repack_bench, "SHAPES", {**SHAPES, "small": SMALL})
    make_inputs(tmp_path / "work", 2, lambda _: None, shape="small")
    quantize.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    with pytest.raises(RigError, match=r"llama-quantize --pure .* failed: broken"):
        measure(tmp_path / "work", quantize, 2, 1)


def test_lines_give_the_figures_back() -> None:
    assert from_lines(list(to_lines(FIGURES))) == FIGURES


@pytest.fixture
def measured(
    tiny: Rig, tmp_path: Path, quantize: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Figures], int]:
    """Runs the script with these figures in place of a measurement."""
    server = quantize.with_name("llama-server")
    server.write_text("")
    server.chmod(0o755)
    monkeypatch.setenv("LLAMA_SERVER", str(server))
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(repack_bench, "make_inputs", lambda *_: None)

    def run_with(figures: Figures) -> int:
        monkeypatch.setattr(repack_bench, "measure", lambda *_: figures)
        return run_script(bench_repack.body, [str(tiny.folder), str(tmp_path / "run")])

    return run_with


def test_script_writes_a_run_directory(
    measured: Callable[[Figures], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured(FIGURES) == 0
    assert "takes 0.90 times as long as llama-quantize with 2 threads" in capsys.readouterr().out
    folder = tmp_path / "run"
    summary = json.loads((folder / report.SUMMARY).read_text())
    assert summary["meets_targets"] is True
    assert summary["ratio"] == pytest.approx(0.9)
    assert summary["commands"][0]["resident"] == 300_000_000
    text = (folder / report.REPORT).read_bytes()
    assert b"all targets are met" in text
    (folder / report.REPORT).unlink()
    report.write(folder)
    assert (folder / report.REPORT).read_bytes() == text
    assert not (tmp_path / "cache" / "bench-repack").exists()


def test_a_missed_target_is_said(
    measured: Callable[[Figures], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured(dataclasses.replace(FIGURES, numpy_seconds=1.0)) == 1
    assert "NOT all targets are met" in capsys.readouterr().out


def test_script_without_the_program(
    measured: Callable[[Figures], int], quantize: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantize.unlink()
    assert measured(FIGURES) == 1
    assert "llama-quantize is missing; build the engine" in capsys.readouterr().err
