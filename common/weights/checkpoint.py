"""A checkpoint: the folder of safetensors files a model is published as."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from common.errors import RigError, disk_says, shown
from common.weights import q4_0
from common.weights.gguf_file import GgufFile
from common.weights.part_file import PartFile
from common.weights.q4_0 import Values
from common.weights.tensor_names import COMPUTED, checkpoint_name

INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"(?!\.)[\w.-]{1,200}\.safetensors")
# Bounds far above what any model needs: a header is not believed before it is held against them.
MOST_JSON = 16 << 20
"""bytes of a header or an index"""
MOST_AXES = 16
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
    files = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    if not files:
        raise RigError(f"no .safetensors file in {folder}; is the snapshot complete?")
    if len(files) > 1:
        raise RigError(f"{folder} holds {len(files)} .safetensors files but no {INDEX}")
    return {tensor.name: tensor for tensor in _read_header(files[0])}


def read_into(tensor: SourceTensor, start: int, out: npt.NDArray[Any]) -> None:
    """Fill `out` with the values from number `start` on; `out` must have the tensor's NumPy type.

    Reads by call, not through a mapping, so that no more than `out` is ever resident.
    """
    fix = "make or fetch it again"
    with disk_says(tensor.path, fix), tensor.path.open("rb", buffering=0) as file:
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
    shard_of = _shards(index)
    tensors: dict[str, SourceTensor] = {}
    for shard in sorted(set(shard_of.values())):
        path = index.parent / shard
        if not path.is_file():
            raise RigError(f"{index} names {shard}, which is missing; fetch it")
        for tensor in _read_header(path):
            if shard_of.get(tensor.name) != shard:
                raise RigError(
                    f"{path} holds {shown(tensor.name)}, which {INDEX} does not place there"
                )
            tensors[tensor.name] = tensor
    missing = sorted(set(shard_of) - set(tensors))
    if missing:
        raise RigError(
            f"{INDEX} names {shown(missing[0])}, but {shard_of[missing[0]]} does not hold it"
        )
    return tensors


def _shards(index: Path) -> dict[str, str]:
    """Which file holds each tensor: plain names, as they lie beside the index."""
    with disk_says(index, "fetch it again"), index.open("rb") as file:
        text = file.read(MOST_JSON + 1)
    try:
        shard_of = _json(text)["weight_map"]
        plain = all(SHARD.fullmatch(shard) for shard in shard_of.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RigError(f"{index} is not an index of safetensors files; fetch it again") from error
    if not plain:
        raise RigError(f"{index} names a file that is none of a checkpoint; fetch it again")
    return cast(dict[str, str], shard_of)


def _json(text: bytes) -> Any:
    """What a JSON text holds. Raises ValueError, whatever is wrong with it."""
    if len(text) > MOST_JSON:
        raise ValueError("longer than that of any model")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested without end") from None


def _read_header(path: Path) -> Iterator[SourceTensor]:
    """The tensors of one file: 8 bytes of length, that much JSON, then the values.

    Read here because the safetensors package has no way to read part of a bf16 tensor into NumPy
    (it fails on the type), and gives no offsets to read it by.
    """
    with disk_says(path, "fetch it again"), path.open("rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise RigError(f"{path} is cut short or no safetensors file; fetch it again")
        text = file.read(min(length, MOST_JSON + 1))
    try:
        header = _json(text)
        header.pop("__metadata__", None)
        entries = [_entry(name, entry) for name, entry in header.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RigError(f"{path} has no readable safetensors header; fetch it again") from error
    for name, dtype, shape, begin, end in entries:
        what = f"{path}: {shown(name)}"
        if dtype not in DTYPES:
            raise RigError(f"{what} is {shown(dtype)}; only {', '.join(DTYPES)} can be read")
        if end - begin != math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize:
            raise RigError(f"{what} has the wrong number of bytes for its shape")
        if 8 + length + end > size:
            raise RigError(
                f"{path} is cut short: it ends before {shown(name)} does; fetch it again"
            )
        yield SourceTensor(name, dtype, shape, path, 8 + length + begin)


def _entry(name: str, entry: Any) -> tuple[str, str, tuple[int, ...], int, int]:
    """One tensor of a header: name, type, shape, and where its bytes begin and end."""
    dtype, shape = entry["dtype"], entry["shape"]
    begin, end = entry["data_offsets"]
    numbers = [*shape, begin, end] if len(shape) <= MOST_AXES else [-1]
    if type(dtype) is not str or not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
        raise ValueError(f"{name} is no tensor")
    return name, dtype, tuple(shape), begin, end
