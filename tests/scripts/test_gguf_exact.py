import json
from pathlib import Path

import pytest

from common.weights.gguf_file import open_gguf
from scripts.gguf_exact import body
from tests.helpers.run_script import run_script
from tests.helpers.small_model import weights, write_q8_0, write_snapshot


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[str, str]:
    snapshot = write_snapshot(tmp_path / "snapshot", weights())
    return str(snapshot), str(write_q8_0(tmp_path / "q8.gguf", weights()))


def test_repack_then_check(
    tmp_path: Path, inputs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, figures = tmp_path / "out.gguf", tmp_path / "check.json"
    assert run_script(body, [*inputs, str(out), "--keep", "token_embd.weight=bf16"]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {out}: 6 tensors, ")
    assert run_script(body, [inputs[0], "--check", str(out), "--json", str(figures)]) == 0
    table = capsys.readouterr().out
    assert "all Q4_0" in table
    assert "100.000%" in table
    written = json.loads(figures.read_text())
    assert written["bytes"] == out.stat().st_size
    rows = {row["name"]: row for row in written["tensors"]}
    assert rows["token_embd.weight"]["type"] == "BF16"
    assert rows["token_embd.weight"]["identical"] == 1
    assert rows["rope_freqs.weight"]["identical"] is None
    assert {row["type"] for row in written["by_type"]} == {"Q4_0", "BF16", "F32"}


def test_bf16(tmp_path: Path, inputs: tuple[str, str]) -> None:
    out = tmp_path / "out.gguf"
    assert run_script(body, [*inputs, str(out), "--bf16"]) == 0
    assert {tensor.type.name for tensor in open_gguf(out).tensors} == {"BF16", "F32"}


def test_errors_are_one_line(
    tmp_path: Path, inputs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script(body, [*inputs, inputs[1]]) == 1
    assert run_script(body, [str(tmp_path / "none"), inputs[1], str(tmp_path / "o")]) == 1
    assert run_script(body, [inputs[0], "--check", str(tmp_path / "none.gguf")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        ["s"],
        ["s", "q8.gguf"],
        ["s", "q8.gguf", "out.gguf", "--check", "x"],
        ["s", "q8.gguf", "out.gguf", "--keep", "token_embd"],
        ["s", "q8.gguf", "out.gguf", "--keep", "token_embd=q8_0"],
        ["s", "q8.gguf", "out.gguf", "--threads", "0"],
    ],
)
def test_usage_errors(arguments: list[str]) -> None:
    assert run_script(body, arguments) == 2
