import errno
import os
from pathlib import Path

import gguf
import numpy as np
import pytest

from common.errors import RigError
from common.weights.gguf_file import GgufWriter, Tensor, number, open_gguf
from tests.helpers.small_model import weights, write_q8_0

F32 = gguf.GGMLQuantizationType.F32
VALUES = np.arange(12, dtype=np.float32)
LAYOUT = [Tensor("a", (3, 4), F32), Tensor("b", (5,), F32)]


def test_reads_what_the_package_writes(tmp_path: Path) -> None:
    path = write_q8_0(tmp_path / "q8.gguf", weights())
    file = open_gguf(path)
    reader = gguf.GGUFReader(path)
    keys = [key for key in reader.fields if not key.startswith("GGUF.")]
    assert [setting.key for setting in file.settings] == keys
    assert file.value("general.architecture") == "gemma4-assistant"
    assert file.value("general.file_type") == gguf.LlamaFileType.MOSTLY_Q8_0
    assert file.value("some.flag") is True
    assert file.value("some.numbers") is None
    assert file.numbers("some.numbers") == (1, 2, 3)
    assert file.numbers("some.flag") == (1,)
    assert file.numbers("general.architecture") == file.numbers("no.such.key") == ()
    whole = path.read_bytes()
    assert b"".join(setting.raw for setting in file.settings) in whole
    assert [tensor.name for tensor in file.tensors] == [t.name for t in reader.tensors]
    for ours, theirs in zip(file.tensors, reader.tensors, strict=True):
        assert ours.shape == tuple(theirs.shape[::-1])
        assert ours.type == theirs.tensor_type
        raw = file.read(ours, 0, ours.size)
        np.testing.assert_array_equal(raw, theirs.data.view(np.uint8).reshape(-1))
        assert ours.nbytes == theirs.n_bytes
    matrix = next(t for t in file.tensors if t.name == "token_embd.weight")
    part = file.read(matrix, 64, 32)
    np.testing.assert_array_equal(part, file.read(matrix, 0, matrix.size)[68:102])


def test_keeps_an_alignment_other_than_32(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "gemma4")
    writer.add_custom_alignment(128)
    writer.add_tensor("a", VALUES)
    writer.add_tensor("b", VALUES + 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_gguf(tmp_path / "a.gguf")
    assert file.alignment == 128
    np.testing.assert_array_equal(file.read(file.tensors[1], 0, 12).view(np.float32), VALUES + 1)


def test_package_reads_what_we_write(tmp_path: Path) -> None:
    base = open_gguf(write_q8_0(tmp_path / "q8.gguf", weights()))
    path = tmp_path / "out.gguf"
    with GgufWriter(path, [*base.settings, number("more.number", 7)], LAYOUT, 32) as writer:
        first, second = writer.tensors
        writer.write(first, 8, VALUES[8:])
        writer.write(second, 0, VALUES[:5])
        writer.write(first, 0, VALUES[:8])
        assert not path.exists()
    reader = gguf.GGUFReader(path)
    assert reader.fields["more.number"].contents() == 7
    assert reader.fields["some.numbers"].contents() == [1, 2, 3]
    np.testing.assert_array_equal(reader.tensors[0].data, VALUES.reshape(3, 4))
    np.testing.assert_array_equal(reader.tensors[1].data, VALUES[:5])
    assert [item.name for item in tmp_path.iterdir() if "out" in item.name] == ["out.gguf"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!doctype html><html><body>Sign in</body></html>", "is not a GGUF file"),
        (b"", "is not a GGUF file"),
        (b"GGUF", "is not a GGUF file"),
        (b"GGUF" + (9).to_bytes(4, "little") + bytes(16), "is GGUF version 9"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(RigError, match=message):
        open_gguf(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="No such file"):
        open_gguf(tmp_path / "none.gguf")


def test_truncated_at_any_length(tmp_path: Path) -> None:
    whole = write_q8_0(tmp_path / "q8.gguf", weights()).read_bytes()
    path = tmp_path / "short.gguf"
    for length in [*range(24, 1200, 7), len(whole) - 32]:  # the last 24 bytes are padding
        path.write_bytes(whole[:length])
        with pytest.raises(RigError, match="cut short"):
            open_gguf(path)


def test_never_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    path.write_text("mine")
    with pytest.raises(RigError, match="exists"):
        GgufWriter(path, [], LAYOUT, 32)
    assert path.read_text() == "mine"


def fill(path: Path, last: object) -> None:
    """Write a file whose second tensor is `last`, an array; anything else fails half way."""
    with GgufWriter(path, [], LAYOUT, 32) as writer:
        writer.write(writer.tensors[0], 0, VALUES)
        assert path.with_name("out.gguf.part").exists()
        if not isinstance(last, np.ndarray):
            raise KeyboardInterrupt
        writer.write(writer.tensors[1], 0, last)


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "out.gguf", None)
    assert list(tmp_path.iterdir()) == []


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite

    def full(file: int, data: bytes, at: int) -> int:
        if at > 160:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(RigError, match=r"cannot write .*out\.gguf\.part: No space left"):
        fill(tmp_path / "out.gguf", VALUES[:5])
    assert list(tmp_path.iterdir()) == []


def test_no_folder_to_write_into(tmp_path: Path) -> None:
    with (
        pytest.raises(RigError, match="No such file"),
        GgufWriter(tmp_path / "none" / "out.gguf", [], LAYOUT, 32),
    ):
        pytest.fail("entered")
