"""Safetensors files and indexes that are damaged are read, or refused in one line; soon."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from common.errors import RigError
from common.weights.checkpoint import INDEX, open_checkpoint, read
from tests.fuzz.mutate import CHUNKS, EDGES, mutated, randoms

LIMIT_S = 5.0  # of this process's own time
HEADER: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "a.weight": {"dtype": "BF16", "shape": [4, 3], "data_offsets": [0, 24]},
    "b.weight": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]},
}
MAP = dict.fromkeys(("a.weight", "b.weight"), "model.safetensors")
ODD: tuple[Any, ...] = (
    *EDGES,
    *(-edge for edge in EDGES),
    None,
    True,
    0.5,
    float("inf"),
    float("nan"),
    "",
    "BF16",
    "F64",
    "../x.safetensors",
    "a" * 5000 + ".safetensors",
    "\0.safetensors",
    "\ud800\n",
    [],
    {},
    [0, 24],
    [1] * 300,
    [[[]]],
    {"dtype": "F16"},
)


def packed(header: bytes, length: int | None = None) -> bytes:
    size = len(header) if length is None else length
    return (size % (1 << 64)).to_bytes(8, "little") + header + bytes(32)


def spoilt(chance: random.Random, value: Any) -> Any:
    """A JSON value with one part of it something else."""
    if not value or not isinstance(value, dict | list) or chance.random() < 0.2:
        return chance.choice(ODD)
    places = list(value) if isinstance(value, dict) else range(len(value))
    place = chance.choice(places)
    copy = value.copy()
    copy[place] = spoilt(chance, value[place])
    return copy


def damaged(chance: random.Random, value: Any) -> bytes:
    if chance.random() < 0.5:
        return json.dumps(spoilt(chance, value)).encode()
    text = json.dumps(value).encode()
    return mutated(chance, text, len(text))


def is_read(folder: Path, number: int) -> bool:
    """Whether all of the checkpoint can be read; refused is well too, but in one line and soon."""
    started, said = time.process_time(), ""
    try:
        for tensor in open_checkpoint(folder).values():
            assert len(read(tensor, 0, tensor.size)) == tensor.size
    except RigError as error:
        said = str(error)
    assert "\n" not in said, number
    assert time.process_time() - started < LIMIT_S, number
    return not said


def test_the_right_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(packed(json.dumps(HEADER).encode()))
    assert is_read(tmp_path, 0)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": MAP}))
    assert is_read(tmp_path, 0)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_damaged_header_is_one_line(tmp_path: Path, chunk: int) -> None:
    found = []
    for number, chance in enumerate(randoms(chunk), chunk):
        length = chance.choice(EDGES) if chance.random() < 0.1 else None
        content = packed(damaged(chance, HEADER), length)
        (tmp_path / "model.safetensors").write_bytes(content)
        found.append(is_read(tmp_path, number))
    assert found.count(False) > found.count(True) > 0


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_damaged_index_is_one_line(tmp_path: Path, chunk: int) -> None:
    (tmp_path / "model.safetensors").write_bytes(packed(json.dumps(HEADER).encode()))
    found = []
    for number, chance in enumerate(randoms(chunk), chunk):
        (tmp_path / INDEX).write_bytes(damaged(chance, {"metadata": {}, "weight_map": MAP}))
        found.append(is_read(tmp_path, number))
    assert found.count(False) > found.count(True) > 0
