import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from common.errors import RigError
from common.weights import q4_0
from common.weights.checkpoint import INDEX, MOST_JSON, open_checkpoint, read
from tests.helpers.small_model import weights, write_snapshot


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_reads_what_the_library_writes(tmp_path: Path, dtype: str) -> None:
    tensors = weights()
    found = open_checkpoint(write_snapshot(tmp_path, tensors, dtype))
    assert set(found) == set(tensors)
    for name, values in tensors.items():
        assert found[name].shape == values.shape
        expected = values.astype(np.float16).astype(np.float32) if dtype == "float16" else values
        whole = q4_0.widen(read(found[name], 0, values.size))
        np.testing.assert_array_equal(whole, expected.reshape(-1))
    matrix = found["model.embed_tokens.weight"]
    part = q4_0.widen(read(matrix, 70, 100))
    expected = q4_0.widen(read(matrix, 0, matrix.size))[70:170]
    np.testing.assert_array_equal(part, expected)


def shards(folder: Path) -> tuple[Path, dict[str, str]]:
    """A checkpoint in two files; the index and its map."""
    tensors = weights()
    first = {name: tensors[name] for name in list(tensors)[:2]}
    second = {name: tensors[name] for name in list(tensors)[2:]}
    write_snapshot(folder, first, name="model-00001-of-00002.safetensors")
    write_snapshot(folder, second, name="model-00002-of-00002.safetensors")
    places = dict.fromkeys(first, "model-00001-of-00002.safetensors")
    places |= dict.fromkeys(second, "model-00002-of-00002.safetensors")
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder / INDEX, places


def test_reads_shards_by_their_index(tmp_path: Path) -> None:
    shards(tmp_path)
    found = open_checkpoint(tmp_path)
    for name, values in weights().items():
        np.testing.assert_array_equal(
            q4_0.widen(read(found[name], 0, values.size)), values.reshape(-1)
        )


def drop_shard(index: Path, _: dict[str, str]) -> None:
    (index.parent / "model-00002-of-00002.safetensors").unlink()


def drop_index(index: Path, _: dict[str, str]) -> None:
    index.unlink()


def damage_index(index: Path, _: dict[str, str]) -> None:
    index.write_text("<html>")


def index_without_a_tensor(index: Path, places: dict[str, str]) -> None:
    del places["model.embed_tokens.weight"]
    index.write_text(json.dumps({"weight_map": places}))


def index_with_a_tensor_too_many(index: Path, places: dict[str, str]) -> None:
    places["model.more.weight"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps({"weight_map": places}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (drop_shard, "names model-00002-of-00002.safetensors, which is missing"),
        (drop_index, "holds 2 .safetensors files but no"),
        (damage_index, "is not an index"),
        (index_without_a_tensor, "does not place there"),
        (index_with_a_tensor_too_many, "does not hold it"),
    ],
)
def test_bad_shards(
    tmp_path: Path, spoil: Callable[[Path, dict[str, str]], None], message: str
) -> None:
    spoil(*shards(tmp_path))
    with pytest.raises(RigError, match=message):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("length", [0, 5, 8, 100, -1])
def test_truncated_file(tmp_path: Path, length: int) -> None:
    path = write_snapshot(tmp_path, weights()) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(RigError, match="cut short"):
        open_checkpoint(tmp_path)


def test_file_that_shrinks_while_read(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path, weights()) / "model.safetensors"
    last = max(open_checkpoint(tmp_path).values(), key=lambda tensor: tensor.offset)
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(RigError, match="ends inside"):
        read(last, 0, last.size)


def entry(**changes: object) -> bytes:
    """A header of one tensor, with something else in place of what is right."""
    right = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}
    return json.dumps({"a": right | changes}).encode()


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"[1, 2]",
        b'{"a": {"dtype": "BF16"}}',
        b'{"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0]}}',
        b"[" * 100_000,
        b'{"a": ' * 50_000,
        b"null",
        b'"text"',
        b"\xff\xfe",
        entry(shape=[1e999]),
        entry(shape=[2.0]),
        entry(shape=["2"]),
        entry(shape=[True, 2]),
        entry(shape=[-1, -2]),
        entry(shape=[1] * 200_000),
        entry(shape="22"),
        entry(data_offsets=[0, 1e999]),
        entry(data_offsets=[-4, 0]),
        entry(data_offsets=[0, None]),
        entry(data_offsets=[0, 2**64]),
        entry(dtype=["BF16"]),
        entry(dtype={}),
        entry(dtype=None),
    ],
    ids=lambda header: str(header[:80]),
)
def test_damaged_header(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(RigError, match="no readable safetensors header"):
        open_checkpoint(tmp_path)


def test_wrong_byte_count(tmp_path: Path) -> None:
    header = b'{"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 4]}}'
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    with pytest.raises(RigError, match="wrong number of bytes"):
        open_checkpoint(tmp_path)


def test_type_that_is_no_weight(tmp_path: Path) -> None:
    save_file({"a": np.zeros(4, np.int64)}, tmp_path / "model.safetensors")
    with pytest.raises(RigError, match="a is I64"):
        open_checkpoint(tmp_path)


def test_no_folder_and_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="is not a folder"):
        open_checkpoint(tmp_path / "none")
    with pytest.raises(RigError, match=r"no \.safetensors file"):
        open_checkpoint(tmp_path)


def test_a_header_as_long_as_the_file(tmp_path: Path) -> None:
    """A sparse file of gigabytes is not read whole."""
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write((2**31 - 8).to_bytes(8, "little"))
        file.truncate(2**31)
    tracemalloc.start()
    with pytest.raises(RigError, match="no readable safetensors header"):
        open_checkpoint(tmp_path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * MOST_JSON


@pytest.mark.parametrize(
    "places",
    [
        {"a": 7},
        {"a": None},
        {"a": ["x.safetensors"]},
        {"a": "a" * 5000 + ".safetensors"},
        {"a": "../x.safetensors"},
        {"a": "/srv/x.safetensors"},
        {"a": "x\0.safetensors"},
        {"a": "x.json"},
        ["a"],
        7,
        None,
    ],
    ids=lambda places: str(places)[:60],
)
def test_an_index_that_names_no_files(places: object, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": places}))
    with pytest.raises(RigError, match="fetch it again") as caught:
        open_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff", b" " * (MOST_JSON + 1)], ids=len)
def test_an_index_that_is_none(text: bytes, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_bytes(text)
    with pytest.raises(RigError, match="is not an index"):
        open_checkpoint(tmp_path)


def test_a_file_that_goes_while_read(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path, weights()) / "model.safetensors"
    last = max(open_checkpoint(tmp_path).values(), key=lambda tensor: tensor.offset)
    path.unlink()
    with pytest.raises(RigError, match=r"No such file or directory; make or fetch it again"):
        read(last, 0, last.size)
