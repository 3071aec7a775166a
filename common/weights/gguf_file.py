"""A GGUF file by its parts: settings as raw bytes, tensors as places in the file.

The gguf package reads a file into one object for each token of the vocabulary and rebuilds
settings value by value. Here settings must be copied byte for byte and memory stays small, so the
layout (GGUF version 3, little endian) is walked directly. Block sizes and type numbers come from
the package, and the tests read every file written here with it.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import (
    GGML_QUANT_SIZES,
    GGUF_DEFAULT_ALIGNMENT,
    GGMLQuantizationType,
    GGUFValueType,
)

from common.errors import RigError
from common.weights.part_file import PartFile

MAGIC = b"GGUF"
VERSION = 3
_SCALARS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


@dataclass(frozen=True)
class Setting:
    """One metadata entry: its key and every byte of it, key and type included."""

    key: str
    raw: bytes
    value: int | float | bool | str | None
    """the value of a number or a string; None for an array"""


@dataclass(frozen=True)
class Tensor:
    """One tensor. shape is in NumPy order: the last axis is the row that blocks lie along."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int = 0
    """bytes from the start of the file; set by who places it"""

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return byte_count(self.size, self.type)


@dataclass(frozen=True)
class GgufFile:
    path: Path
    settings: tuple[Setting, ...]
    tensors: tuple[Tensor, ...]
    alignment: int

    def value(self, key: str) -> int | float | bool | str | None:
        """The setting `key`, or None where it is absent or an array."""
        return next((s.value for s in self.settings if s.key == key), None)

    def numbers(self, key: str) -> tuple[int | float, ...]:
        """The setting `key` where it is a number or an array of numbers; empty where it is not."""
        found = next((s for s in self.settings if s.key == key), None)
        if found is None or isinstance(found.value, str):
            return ()
        if found.value is not None:
            return (found.value,)
        begin = 8 + len(key.encode())
        kind, item, count = struct.unpack_from("<IIQ", found.raw, begin)
        if kind != GGUFValueType.ARRAY or item not in _SCALARS:
            return ()
        return struct.unpack_from(f"<{count}{_SCALARS[GGUFValueType(item)]}", found.raw, begin + 16)

    def read(self, tensor: Tensor, start: int, count: int) -> npt.NDArray[np.uint8]:
        """The bytes of `count` values from number `start` on, both whole blocks."""
        begin = tensor.offset + byte_count(start, tensor.type)
        size = byte_count(count, tensor.type)
        out = np.fromfile(self.path, np.uint8, size, offset=begin)
        if len(out) != size:
            raise RigError(f"{self.path} ends inside {tensor.name}; make or fetch it again")
        return out


def byte_count(values: int, kind: GGMLQuantizationType) -> int:
    """Bytes that `values` values take in whole blocks of `kind`."""
    block, size = GGML_QUANT_SIZES[kind]
    return values // block * size


def number(key: str, value: int) -> Setting:
    """A uint32 setting."""
    name = key.encode()
    raw = struct.pack("<Q", len(name)) + name + struct.pack("<II", GGUFValueType.UINT32, value)
    return Setting(key, raw, value)


def open_gguf(path: Path) -> GgufFile:
    """Read everything but the tensors' values.

    Raises RigError if `path` is missing, no GGUF file (a saved web page, say), or cut short.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(24)
    except OSError as error:
        raise RigError(f"cannot read {path}: {error.strerror}") from error
    if header[:4] != MAGIC or len(header) < 24:
        raise RigError(f"{path} is not a GGUF file (it begins with {header[:4]!r}); fetch it again")
    version, tensor_count, setting_count = struct.unpack_from("<IQQ", header, 4)
    if version not in (2, VERSION):
        raise RigError(f"{path} is GGUF version {version}; this reads 2 and 3, little endian")
    data = np.memmap(path, np.uint8, "r")
    cursor = _Cursor(data.data, 24)
    try:
        settings = tuple(cursor.setting() for _ in range(setting_count))
        relative = [cursor.tensor() for _ in range(tensor_count)]
    except (struct.error, ValueError, KeyError) as error:
        raise RigError(f"{path} is cut short or damaged in its header; fetch it again") from error
    chosen = next((s.value for s in settings if s.key == "general.alignment"), None)
    alignment = int(chosen) if chosen else GGUF_DEFAULT_ALIGNMENT
    start = _padded(cursor.at, alignment)
    tensors = tuple(replace(t, offset=t.offset + start) for t in relative)
    for tensor in tensors:
        if tensor.offset + tensor.nbytes > size:
            raise RigError(f"{path} is cut short: it ends before {tensor.name} does")
    return GgufFile(path, settings, tensors, alignment)


class GgufWriter:
    """Writes a GGUF file by slices; a context manager like the PartFile under it.

    Room for every tensor is laid out at once; `write` then fills any part of one, in any order and
    from several threads. tensors: those given, with their places in the new file.
    """

    def __init__(
        self, path: Path, settings: Sequence[Setting], tensors: Sequence[Tensor], alignment: int
    ) -> None:
        head = MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(settings))
        head += b"".join(setting.raw for setting in settings)
        offsets, end = [], 0
        for tensor in tensors:
            name, dims = tensor.name.encode(), tensor.shape[::-1]
            head += struct.pack("<Q", len(name)) + name
            head += struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, tensor.type, end)
            offsets.append(end)
            end += _padded(tensor.nbytes, alignment)
        start = _padded(len(head), alignment)
        self.tensors = tuple(
            replace(tensor, offset=start + at) for tensor, at in zip(tensors, offsets, strict=True)
        )
        self._head = head
        self._file = PartFile(path, start + end)

    def __enter__(self) -> "GgufWriter":
        self._file.__enter__()
        self._file.write(0, self._head)
        return self

    def write(self, tensor: Tensor, start: int, data: npt.NDArray[Any]) -> None:
        """Write `data` as the values of `tensor` from number `start` on (whole blocks)."""
        self._file.write(tensor.offset + byte_count(start, tensor.type), data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.__exit__(kind, error, trace)


class _Cursor:
    """Walks a GGUF header."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self.at = at

    def setting(self) -> Setting:
        start = self.at
        key = self._text()
        (kind,) = self._take("<I")
        value = self._value(GGUFValueType(kind))
        return Setting(key, bytes(self._data[start : self.at]), value)

    def tensor(self) -> Tensor:
        name = self._text()
        (axes,) = self._take("<I")
        dims = self._take(f"<{axes}Q")
        kind, offset = self._take("<IQ")
        return Tensor(name, tuple(dims[::-1]), GGMLQuantizationType(kind), offset)

    def _value(self, kind: GGUFValueType) -> int | float | bool | str | None:
        if kind == GGUFValueType.STRING:
            return self._text()
        if kind != GGUFValueType.ARRAY:
            return self._take("<" + _SCALARS[kind])[0]  # type: ignore[no-any-return]
        item, count = self._take("<IQ")
        if item == GGUFValueType.STRING:
            self._skip_texts(count)
        elif item == GGUFValueType.ARRAY:
            for _ in range(count):
                self._value(GGUFValueType.ARRAY)
        else:
            self.at += count * struct.calcsize("<" + _SCALARS[GGUFValueType(item)])
        return None

    def _skip_texts(self, count: int) -> None:
        data, at, unpack = self._data, self.at, struct.Struct("<Q").unpack_from
        for _ in range(count):  # a vocabulary: keep this loop bare
            at += 8 + unpack(data, at)[0]
        self.at = at

    def _text(self) -> str:
        (length,) = self._take("<Q")
        text = bytes(self._data[self.at : self.at + length])
        if len(text) != length:
            raise ValueError("text runs past the end")
        self.at += length
        return text.decode()

    def _take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._data, self.at)
        self.at += struct.calcsize(layout)
        return values


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
