import json
from pathlib import Path

import pytest

from common import repack_bench
from common.errors import RigError
from common.repack_bench import Figures, Timing, make_inputs, measure
from common.shapes import SHAPES
from scripts import bench_repack
from tests.test_shaped_pair import SMALL

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


def test_script_prints_and_writes(
    tmp_path: Path,
    quantize: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench_repack, "make_inputs", lambda *_: None)
    monkeypatch.setattr(bench_repack, "measure", lambda *_: FIGURES)
    monkeypatch.setenv("LLAMA_QUANTIZE", str(quantize))
    assert bench_repack.main([str(tmp_path), "--json", str(tmp_path / "bench.json")]) == 0
    out = capsys.readouterr().out
    assert "wall over llama-quantize's: 0.90 (at most 1; rounds 0.60 to 1.20" in out
    assert "faster than NumPy: 60.0 times" in out
    assert "resident: 300 MB" in out
    written = json.loads((tmp_path / "bench.json").read_text())
    assert written["meets_targets"] is True
    assert written["ratio"] == pytest.approx(0.9)
    assert written["exact"][1]["resident"] == 300_000_000


def test_script_without_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_repack.main([str(tmp_path), "--llama-quantize", str(tmp_path / "none")]) == 1
    assert "set LLAMA_QUANTIZE" in capsys.readouterr().err
