"""The converter's environment and errors; and, on request, the real one from end to end."""

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

from common import rig
from common.engines.llamacpp import converter
from common.engines.llamacpp.converter import Converter
from common.engines.llamacpp.source import Source
from common.errors import RigError
from common.rigs import repacking
from common.weights import q4_0
from common.weights.checkpoint import open_checkpoint, read
from common.weights.tensor_names import gguf_name
from scripts import repack
from tests.conftest import TINY
from tests.helpers.blocks import unpack

HERE = Path(__file__).parent


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A llama.cpp source folder whose converter copies a file, or fails on request."""
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    found = Source("release", "1", "x", None)
    found.folder.mkdir(parents=True)
    (found.folder / "convert_hf_to_gguf.py").write_text(
        "import os, sys, pathlib\n"
        "assert sys.argv[2:4] == ['--outtype', 'q8_0'], sys.argv\n"
        "assert os.environ['PYTHONPATH'].endswith('gguf-py')\n"
        "if not pathlib.Path(sys.argv[1]).is_dir(): sys.exit('no such model')\n"
        "pathlib.Path(sys.argv[5]).write_text('GGUF')\n"
    )
    return found


def test_convert(origin: Source, tmp_path: Path) -> None:
    tool = Converter(origin, Path(sys.executable))
    tool.convert(tmp_path, tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_text() == "GGUF"
    with pytest.raises(RigError, match=r"could not read .*\n.*no such model"):
        tool.convert(tmp_path / "none", tmp_path / "other.gguf")
    assert not list(tmp_path.glob("other*"))


def test_environment_is_made_once(
    origin: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch comes from where llama.cpp says if the user's own index lacks it."""
    ran: list[list[str]] = []

    def run(command: list[str]) -> None:
        ran.append(command[1:])
        if command[1:3] == ["-m", "venv"]:
            Path(command[3]).mkdir(parents=True)
        if converter.TORCH in command and "--index-url" not in command:
            raise RigError("no such version")

    monkeypatch.setattr(converter, "_run", run)
    said: list[str] = []
    (origin.folder / "requirements").mkdir()
    with pytest.raises(RigError, match="no such version"):
        converter.environment(origin, said.append)
    (origin.folder / converter.LLAMA_REQUIREMENTS).write_text("--extra-index-url http://x/cpu\n")
    ran.clear()
    home = tmp_path / "cache" / "converter"
    python = converter.environment(origin, said.append)
    assert python.parent.parent.parent == home
    assert ran[0][:2] == ["-m", "venv"]
    assert ran[2][-3:] == ["--index-url", "http://x/cpu", converter.TORCH]
    assert ran[3][-3:] == ["--require-hashes", "-r", str(converter.LOCK)]
    assert converter.environment(origin, said.append) == python
    assert len(ran) == 4


@pytest.mark.converter
@pytest.mark.timeout(1800)
def test_llama_cpps_converter_and_the_exact_repack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A drafter written by transformers: every level comes back, every value to the bit."""
    tool = converter.prepare(rig.load(TINY, environ={}), print)
    snapshot = tmp_path / "snapshot"
    subprocess.run(
        [str(tool.python), str(HERE / "make_checkpoint.py"), str(snapshot)], check=True, env={}
    )
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "models"))
    name = "synthetic-q4_0-exact.gguf"
    made = repacking.make(snapshot, name, None, tool, tmp_path / "work", print)
    files = {file.kind: file for file in made}
    assert [file.path.name for file in made] == [
        "synthetic-q8_0.gguf",
        "synthetic-q4_0-exact.gguf",
        "synthetic-bf16.gguf",
    ]
    assert all(file.note == "new" for file in made)
    _levels_come_back(snapshot, files["q4_0"].path)
    _values_are_the_checkpoints(snapshot, files["bf16"].path)
    share = {
        kind: next(row.identical for row in file.by_type if row.type == kind.upper())
        for kind, file in files.items()
    }
    assert share["bf16"] == 1
    assert share["q4_0"] is not None
    assert share["q8_0"] is not None
    assert share["q4_0"] > 0.9 > 0.3 > share["q8_0"]
    again = repacking.make(snapshot, name, files["q4_0"].sha256, tool, tmp_path / "work", print)
    assert all("the same to the byte" in file.note for file in again)
    assert again[1].note.endswith("; as pinned")
    capsys.readouterr()
    repack.show(again)
    assert "100.000%" in capsys.readouterr().out


def _levels_come_back(snapshot: Path, path: Path) -> None:
    grid = np.load(snapshot / "grid.npz")
    matrices = 0
    reader = gguf.GGUFReader(path)
    assert len(reader.tensors) == 49
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    for key in grid:
        name, _, what = key.rpartition(" ")
        if what != "levels":
            continue
        tensor = tensors[str(gguf_name(name))]
        assert tensor.tensor_type == gguf.GGMLQuantizationType.Q4_0
        levels, steps = unpack(tensor.data.reshape(-1, q4_0.BLOCK_BYTES))
        np.testing.assert_array_equal(levels, grid[key])
        np.testing.assert_allclose(steps, grid[f"{name} steps"], rtol=2**-8)
        again = dequantize(tensor.data, tensor.tensor_type).reshape(levels.shape)
        np.testing.assert_array_equal(again, levels * steps.astype(np.float32)[:, None])
        matrices += 1
    assert matrices == 23


def _values_are_the_checkpoints(snapshot: Path, path: Path) -> None:
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    seen = 0
    for name, source in open_checkpoint(snapshot).items():
        tensor = tensors[str(gguf_name(name))]
        values = dequantize(tensor.data, tensor.tensor_type).reshape(-1)
        np.testing.assert_array_equal(values, q4_0.widen(read(source, 0, source.size)))
        seen += 1
    assert seen == 48  # all but rope_freqs, which the converter computes
