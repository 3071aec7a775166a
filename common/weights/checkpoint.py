"""A checkpoint: the folder of safetensors files a model is published as."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from common.errors import RigError
from common.weights import q4_0
from common.weights.gguf_file import GgufFile
from common.weights.part_file import PartFile
from common.weights.q4_0 import Values
from common.weights.tensor_names import COMPUTED, checkpoint_name

INDEX = "model.safetensors.index.json"
DTYPES: Mapping[str, type[np.generic]] = {
    "BF16": np.uint16,
    "F16": np.float16,
    "F32": np.float32,
}
"""NumPy type of the raw values; bf16, which NumPy lacks, as its bits."""


@dataclass(frozen=True)
class SourceTensor:
    """One tensor of a checkpoint: where its values lie."""

    name: str
    dtype: str
    """BF16, F16 or F32"""
    shape: tuple[int, ...]
    path: Path
    offset: int
    """bytes from the start of the file"""

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def open_checkpoint(folder: Path) -> dict[str, SourceTensor]:
    """Every tensor in `folder`, by name: one .safetensors file, or several with their index.

    Raises RigError for a folder without one, a shard that is missing or cut short, a type other
    than bf16, f16 and f32, and an index that does not match its shards.
    """
    if not folder.is_dir():
        raise RigError(f"{folder} is not a folder; give the folder that holds the snapshot")
    index = folder / INDEX
    if index.is_file():
        return _from_index(index)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise RigError(f"no .safetensors file in {folder}; is the snapshot complete?")
    if len(files) > 1:
        raise RigError(f"{folder} holds {len(files)} .safetensors files but no {INDEX}")
    return {tensor.name: tensor for tensor in _read_header(files[0])}


def read_into(tensor: SourceTensor, start: int, out: npt.NDArray[Any]) -> None:
    """Fill `out` with the values from number `start` on; `out` must have the tensor's NumPy type.

    Reads by call, not through a mapping, so that no more than `out` is ever resident.
    """
    with tensor.path.open("rb", buffering=0) as file:
        file.seek(tensor.offset + start * out.itemsize)
        view = out.reshape(-1).view(np.uint8).data
        while len(view):
            count = file.readinto(view)
            if not count:
                raise RigError(f"{tensor.path} ends inside {tensor.name}; fetch it again")
            view = view[count:]


def read(tensor: SourceTensor, start: int, count: int) -> Values:
    """`count` values from number `start` on; bf16 as its bits in uint16."""
    out = np.empty(count, DTYPES[tensor.dtype])
    read_into(tensor, start, out)
    return cast(Values, out)


def write_checkpoint(file: GgufFile, path: Path) -> None:
    """Write a bf16 GGUF's weights as a published checkpoint would hold them: bf16, its names.

    For small models: each tensor is held whole. Raises RigError if `path` exists, for a tensor that
    no checkpoint holds, and for values that bf16 cannot hold.
    """
    held = [tensor for tensor in file.tensors if tensor.name not in COMPUTED]
    header, offsets, length = layout({tensor.name: tensor.shape for tensor in held})
    with PartFile(path, length) as out:
        out.write(0, header)
        for tensor in held:
            raw = file.read(tensor, 0, tensor.size)
            bits = raw.view(np.uint16)
            if tensor.type == GGMLQuantizationType.F32:
                bits = q4_0.round_to_bf16(raw.view(np.float32))
                if not np.array_equal(q4_0.widen(bits), raw.view(np.float32)):
                    raise RigError(f"{tensor.name}: bf16 cannot hold its values unchanged")
            out.write(offsets[tensor.name], bits)


def layout(tensors: Mapping[str, tuple[int, ...]]) -> tuple[bytes, dict[str, int], int]:
    """A safetensors file for bf16 tensors of these shapes, named as llama.cpp names them.

    Returns its header, where each tensor's values begin in the file, and the file's length. Raises
    RigError for a tensor that no checkpoint holds.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offsets, end = {}, 0
    for name, shape in tensors.items():
        ours, size = checkpoint_name(name), 2 * math.prod(shape)
        if ours is None:
            raise RigError(f"a checkpoint has no name for {name}")
        header[ours] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        offsets[name] = end
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    whole = {name: start + at for name, at in offsets.items()}
    return len(text).to_bytes(8, "little") + text, whole, start + end


def _from_index(index: Path) -> dict[str, SourceTensor]:
    try:
        shard_of = json.loads(index.read_text())["weight_map"]
        shards = sorted(set(shard_of.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RigError(f"{index} is not an index of safetensors files; fetch it again") from error
    tensors: dict[str, SourceTensor] = {}
    for shard in shards:
        path = index.parent / shard
        if not path.is_file():
            raise RigError(f"{index} names {shard}, which is missing; fetch it")
        for tensor in _read_header(path):
            if shard_of.get(tensor.name) != shard:
                raise RigError(f"{path} holds {tensor.name}, which {INDEX} does not place there")
            tensors[tensor.name] = tensor
    missing = sorted(set(shard_of) - set(tensors))
    if missing:
        raise RigError(f"{INDEX} names {missing[0]}, but {shard_of[missing[0]]} does not hold it")
    return tensors


def _read_header(path: Path) -> Iterator[SourceTensor]:
    """The tensors of one file: 8 bytes of length, that much JSON, then the values.

    Read here because the safetensors package has no way to read part of a bf16 tensor into NumPy
    (it fails on the type), and gives no offsets to read it by.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise RigError(f"{path} is cut short or no safetensors file; fetch it again")
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        entries = [
            (name, entry["dtype"], tuple(map(int, entry["shape"])), begin, end)
            for name, entry in header.items()
            for begin, end in [map(int, entry["data_offsets"])]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RigError(f"{path} has no readable safetensors header; fetch it again") from error
    for name, dtype, shape, begin, end in entries:
        if dtype not in DTYPES:
            raise RigError(f"{path}: {name} is {dtype}; only {', '.join(DTYPES)} can be read")
        if end - begin != math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize or begin < 0:
            raise RigError(f"{path}: {name} has the wrong number of bytes for its shape")
        if 8 + length + end > size:
            raise RigError(f"{path} is cut short: it ends before {name} does; fetch it again")
        yield SourceTensor(name, dtype, shape, path, 8 + length + begin)
