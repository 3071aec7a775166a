"""make repack without a hub and without the converter: places, pins, refusals, the record."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from common.engines.llamacpp import converter
from common.engines.llamacpp.converter import Converter
from common.engines.llamacpp.source import Source
from common.errors import RigError
from common.files import snapshot as checkpoints
from common.files.snapshot import Snapshot
from common.rig import Rig
from common.rigs import repacking
from common.rigs.repacking import Made
from common.weights.gguf_file import open_gguf
from scripts import repack
from tests.helpers.small_model import weights, write_q8_0, write_snapshot

NAME = "small-q4_0-exact.gguf"


class Copying(Converter):
    """A converter that has the answer already."""

    def convert(self, snapshot: Path, out: Path) -> None:
        shutil.copy(snapshot / "answer.gguf", out)


TOOL = Copying(Source("release", "1", "x", None), Path("python"))


def quiet(_: str) -> None:
    pass


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    folder = write_snapshot(tmp_path / "snapshot", weights())
    write_q8_0(folder / "answer.gguf", weights())
    return folder


@pytest.fixture
def make(snapshot: Path, tmp_path: Path) -> Callable[..., list[Made]]:
    def call(name: str = NAME, pin: str | None = None) -> list[Made]:
        return repacking.make(snapshot, name, pin, TOOL, tmp_path / "work", quiet)

    return call


def test_three_files_with_the_names_that_formats_expects(
    make: Callable[..., list[Made]], tmp_path: Path
) -> None:
    made = make()
    models = tmp_path / "models"
    assert {file.path for file in made} == {
        models / "small-q8_0.gguf",
        models / NAME,
        models / "small-bf16.gguf",
    }
    for file in made:
        kinds = {t.type.name for t in open_gguf(file.path).tensors if len(t.shape) == 2}
        assert kinds == {file.kind.upper()}
        assert file.size == file.path.stat().st_size
    assert make()[1].note == "the same to the byte as the file that was there"


def test_pins_are_compared(make: Callable[..., list[Made]]) -> None:
    digest = make()[1].sha256
    assert make(pin=digest[:16])[1].note.endswith("; as published, by its first digits")
    assert make(pin=digest)[1].note.endswith("; as pinned")
    assert make(pin="0" * 16)[1].note.endswith(f"; not the pinned file ({'0' * 16})")


def test_a_file_that_is_there_stays(make: Callable[..., list[Made]], tmp_path: Path) -> None:
    mine = tmp_path / "models" / NAME
    mine.parent.mkdir()
    mine.write_text("mine")
    made = make()
    assert mine.read_text() == "mine"
    assert made[1].path == tmp_path / "work" / NAME
    assert made[1].path.is_file()
    assert "which stays" in made[1].note


def test_off_the_grid_nothing_is_made(
    make: Callable[..., list[Made]], snapshot: Path, tmp_path: Path
) -> None:
    off = weights()
    off["model.embed_tokens.weight"][3, 5] *= np.float32(1.37)
    write_snapshot(snapshot, off)
    write_q8_0(snapshot / "answer.gguf", off)
    with pytest.raises(RigError, match="lies on no 4-bit grid"):
        make()
    assert not (tmp_path / "models").exists()


def test_a_name_that_does_not_say_q4_0(make: Callable[..., list[Made]]) -> None:
    with pytest.raises(RigError, match="expected a name ending in"):
        make("small.gguf")


def test_the_whole_command(
    tiny: Rig,
    snapshot: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(checkpoints, "fetch", lambda *_: Snapshot(snapshot, "them/it", "abc"))
    monkeypatch.setattr(converter, "prepare", lambda *_: TOOL)
    monkeypatch.setenv("SPEC_DRAFT_MODEL", NAME)
    monkeypatch.setattr("sys.argv", ["repack.py", str(tiny.folder)])
    repack.body()
    out = capsys.readouterr().out
    assert "SHA-256" in out
    written = json.loads((tmp_path / "models" / "small-q4_0-exact.repack.json").read_text())
    assert (written["repository"], written["revision"]) == ("them/it", "abc")
    assert {file["kind"] for file in written["files"]} == {"q4_0", "q8_0", "bf16"}
