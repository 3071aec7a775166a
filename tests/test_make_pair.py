from pathlib import Path

import pytest

from common.checkpoint import open_checkpoint
from common.gguf_file import open_gguf
from common.shapes import SHAPES
from scripts import make_pair
from scripts.make_pair import main
from tests.test_shaped_pair import SMALL


@pytest.fixture(autouse=True)
def small_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_pair, "SHAPES", {**SHAPES, "small": SMALL})


def test_makes_both_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--shape", "small", "--format", "q8_0"]) == 0
    assert main([str(tmp_path), "--shape", "small", "--format", "safetensors"]) == 0
    target = open_gguf(tmp_path / "small-target-q8_0.gguf")
    drafter = open_gguf(tmp_path / "small-drafter-q8_0.gguf")
    assert target.value("general.architecture") == "gemma4"
    assert drafter.value("general.architecture") == "gemma4-assistant"
    assert drafter.value("gemma4-assistant.embedding_length_out") == SMALL.hidden
    assert len(open_checkpoint(tmp_path / "small-target")) == len(target.tensors) - 1
    assert len(open_checkpoint(tmp_path / "small-drafter")) == len(drafter.tensors) - 1
    assert capsys.readouterr().out.count("random weights") == 4


def test_never_replaces_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small-target-q4_0.gguf").write_text("mine")
    assert main([str(tmp_path), "--shape", "small", "--format", "q4_0"]) == 1
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("arguments", [["--shape", "e9b"], ["--format", "q2"], ["--threads", "0"]])
def test_usage_errors(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(tmp_path), "--shape", "small", "--format", "q4_0", *arguments])
    assert caught.value.code == 2
