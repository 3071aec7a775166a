from pathlib import Path

import numpy as np
import pytest

from common.engines.llamacpp.build import Engine
from common.known import chain, files
from common.rig import Rig
from common.serving import client
from common.serving.process import Server
from common.weights.checkpoint import open_checkpoint
from common.weights.gguf_file import open_gguf
from common.weights.shapes import SHAPES
from common.weights.verify import check
from scripts import gguf_exact, make_pair
from scripts.make_pair import body
from tests.helpers.run_script import run_script
from tests.weights.test_random_pair import SMALL


@pytest.fixture(autouse=True)
def small_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_pair, "SHAPES", {**SHAPES, "small": SMALL})


def test_makes_both_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_script(body, [str(tmp_path), "--shape", "small", "--format", "q8_0"]) == 0
    assert run_script(body, [str(tmp_path), "--shape", "small", "--format", "safetensors"]) == 0
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
    assert run_script(body, [str(tmp_path), "--shape", "small", "--format", "q4_0"]) == 1
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("arguments", [["--shape", "e9b"], ["--format", "q2"], ["--threads", "0"]])
def test_usage_errors(tmp_path: Path, arguments: list[str]) -> None:
    assert (
        run_script(body, [str(tmp_path), "--shape", "small", "--format", "q4_0", *arguments]) == 2
    )


def test_the_known_answer_pair_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("q4_0", "q8_0", "bf16", "safetensors"):
        assert run_script(body, [str(tmp_path), "--shape", "tiny", "--format", kind]) == 0
    assert capsys.readouterr().out.count("known answer") == 8
    for role in ("target", "drafter"):
        name = f"known-answer-tiny-{role}"
        snapshot = open_checkpoint(tmp_path / name)
        for kind, form in files.FORMATS.items():
            file = open_gguf(tmp_path / f"{name}-{kind}.gguf")
            assert file.value("general.file_type") == form[1]
            assert {t.type for t in file.tensors if len(t.shape) == 2} == {form[0]}
            _rows, totals = check(snapshot, file)
            exact = {row.type: row.identical for row in totals}
            assert exact.pop("F32") == 1
            assert exact.pop(form[0].name) == 1  # Q8_0 too, after going back to bf16
    assert run_script(body, [str(tmp_path), "--shape", "tiny", "--format", "q4_0"]) == 1
    assert "exists" in capsys.readouterr().err


@pytest.mark.engine
def test_gguf_exact_gives_the_known_answer_pair_back(
    tmp_path: Path, tiny: Rig, real_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both models: levels to the bit, and the server keeps exactly what it must."""
    for kind in ("safetensors", "q8_0", "q4_0"):
        assert run_script(body, [str(tmp_path), "--shape", "tiny", "--format", kind]) == 0
    out = tmp_path / "exact"
    out.mkdir()
    for name in (chain.TARGET_NAME, chain.DRAFTER_NAME):
        snapshot = tmp_path / name.removesuffix("-q4_0.gguf")
        q8 = tmp_path / files.name_of(name, "q8_0")
        assert run_script(gguf_exact.body, [str(snapshot), str(q8), str(out / name)]) == 0
        made, back = open_gguf(tmp_path / name), open_gguf(out / name)
        levels = 0
        for ours in made.tensors:
            theirs = next(tensor for tensor in back.tensors if tensor.name == ours.name)
            assert theirs.type == ours.type
            raw = made.read(ours, 0, ours.size)
            np.testing.assert_array_equal(raw, back.read(theirs, 0, theirs.size))
            levels += ours.size if len(ours.shape) == 2 else 0
        assert levels > 200_000
        _rows, totals = check(open_checkpoint(snapshot), back)
        assert {row.type: row.identical for row in totals} == {"F32": 1, "Q4_0": 1}
    monkeypatch.setenv("MODELS_DIR", str(out))
    with Server(tiny, real_engine, tmp_path / "log", measuring=True):
        for prompt in ("Any words will do.", "Only their number counts here."):
            reply = client.ask(tiny.url, [client.chat(prompt, 128, temperature=0)], 60)[0]
            known = chain.expect(chain.make_chain(), len(prompt), 128, 2)
            assert reply.error is None
            assert (reply.draft_n, reply.draft_n_accepted) == (known.drafted, known.accepted)
