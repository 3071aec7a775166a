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
from importlib.metadata import version as package_version
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

from common.errors import RigError, disk_says, shown
from common.weights.part_file import PartFile

MAGIC = b"GGUF"
VERSION = 3
# Bounds far above what any model needs: a header is not believed before it is held against them.
HEADER_STEPS = (1 << 20, 1 << 25, 1 << 28)
"""bytes of a file that are read for its header: most need the first, a vocabulary the second"""
MOST_ENTRIES = 100_000
MOST_NUMBERS = 100_000
MOST_AXES = 4  # GGML_MAX_DIMS
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
class RawTensor:
    """A tensor as the header describes it: its type by number, its offset from the first tensor."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


class UnknownTypeError(RigError):
    """A file is of a number format that the gguf package does not know; llama.cpp may."""


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
        if count > MOST_NUMBERS:
            raise RigError(f"{self.path}: {shown(key)} holds {count:,} numbers; fetch it again")
        return struct.unpack_from(f"<{count}{_SCALARS[GGUFValueType(item)]}", found.raw, begin + 16)

    def read(self, tensor: Tensor, start: int, count: int) -> npt.NDArray[np.uint8]:
        """The bytes of `count` values from number `start` on, both whole blocks."""
        begin = tensor.offset + byte_count(start, tensor.type)
        size = byte_count(count, tensor.type)
        with disk_says(self.path, "make or fetch it again"):
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


_Header = tuple[tuple[Setting, ...], tuple[RawTensor, ...], int]
"""settings, tensors, and the length of both"""


def open_gguf(path: Path) -> GgufFile:
    """Read everything but the tensors' values.

    Raises RigError if `path` is missing, no GGUF file (a saved web page, say), cut short or
    damaged; UnknownTypeError if it holds a number format that the gguf package does not know.
    """
    try:
        size, parsed = _parsed(path)
    except OSError as error:
        raise RigError(f"cannot read {path}: {error.strerror}") from error
    settings, relative, end = parsed
    alignment = _alignment(path, settings)
    start = _padded(end, alignment)
    return GgufFile(
        path,
        settings,
        tuple(_placed(path, tensor, start, size) for tensor in relative),
        alignment,
    )


def parts_of(path: Path) -> int:
    """How many files the model of a GGUF file is split into, as the file itself says; else 1."""
    try:
        settings, _tensors, _end = _parsed(path)[1]
    except (OSError, RigError):
        return 1  # whoever reads it says what is wrong with it
    count = next((s.value for s in settings if s.key == "split.count"), None)
    return count if isinstance(count, int) and count > 1 else 1


def _parsed(path: Path) -> tuple[int, _Header]:
    """The file's size and its header. Raises OSError or RigError.

    The header says nowhere how long it is: more of the file is read until all of it is there.
    """
    if path.exists() and not path.is_file():
        raise RigError(f"{path} is not a file; move it away, or name another")
    size = path.stat().st_size
    with path.open("rb") as file:
        for length in HEADER_STEPS:
            file.seek(0)
            data = file.read(length)
            try:
                return size, _header(path, data)
            except _ShortError:
                if len(data) < length:
                    break
            except (struct.error, ValueError, KeyError, OverflowError) as error:
                raise _damaged(path) from error
    if size > HEADER_STEPS[-1]:
        raise RigError(f"{path} says that its header is longer than {HEADER_STEPS[-1]:,} bytes")
    raise _damaged(path)


def _header(path: Path, data: bytes) -> _Header:
    if data[:4] != MAGIC or len(data) < 24:
        raise RigError(f"{path} is not a GGUF file (it begins with {data[:4]!r}); fetch it again")
    version, tensor_count, setting_count = struct.unpack_from("<IQQ", data, 4)
    if version not in (2, VERSION):
        raise RigError(f"{path} is GGUF version {version}; this reads 2 and 3, little endian")
    if max(tensor_count, setting_count) > MOST_ENTRIES:
        raise ValueError("more entries than any model has")
    cursor = _Cursor(data, 24)
    settings = tuple(cursor.setting() for _ in range(setting_count))
    tensors = tuple(cursor.tensor() for _ in range(tensor_count))
    for names in ([s.key for s in settings], [t.name for t in tensors]):
        if len(set(names)) < len(names):
            raise ValueError("a name twice")
    return settings, tensors, cursor.at


def _damaged(path: Path) -> RigError:
    return RigError(f"{path} is cut short or damaged in its header; fetch it again")


def _alignment(path: Path, settings: tuple[Setting, ...]) -> int:
    found = next((s for s in settings if s.key == "general.alignment"), None)
    if found is None:
        return GGUF_DEFAULT_ALIGNMENT
    value = found.value
    # As llama.cpp: a power of two.
    if type(value) is not int or value < 1 or value & (value - 1):
        raise RigError(
            f"{path} is damaged: general.alignment is "
            f"{'an array' if value is None else shown(str(value))}, not a power of two; "
            "fetch it again"
        )
    return value


def _placed(path: Path, raw: RawTensor, start: int, size: int) -> Tensor:
    """The tensor with its type, and its place in the file held against the file's size."""
    name = shown(raw.name)
    try:
        kind = GGMLQuantizationType(raw.kind)
    except ValueError:
        raise UnknownTypeError(
            f"{path}: {name} is of tensor type {raw.kind}, which is unknown to this gguf package "
            f"({package_version('gguf')}); the file may be newer than it, and llama.cpp may read it"
        ) from None
    # As llama.cpp: no axis without values, and rows of whole blocks.
    if not all(raw.shape) or raw.shape[-1] % GGML_QUANT_SIZES[kind][0]:
        raise RigError(f"{path} is damaged: {name} cannot have the shape {raw.shape}")
    tensor = Tensor(raw.name, raw.shape, kind, start + raw.offset)
    if tensor.offset + tensor.nbytes > size:
        raise RigError(f"{path} is cut short: it ends before {name} does; fetch it again")
    return tensor


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


class _ShortError(Exception):
    """The header goes on behind what was read of it."""


class _Cursor:
    """Walks a GGUF header. Raises _ShortError where it ends too early.

    Every length is held against what is left before anything of that length is made.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def setting(self) -> Setting:
        start = self.at
        key = self._text()
        (kind,) = self._take("<I")
        value = self._value(GGUFValueType(kind))
        return Setting(key, self._data[start : self.at], value)

    def tensor(self) -> RawTensor:
        name = self._text()
        (axes,) = self._take("<I")
        if not 1 <= axes <= MOST_AXES:
            raise ValueError(f"{axes} axes")
        dims = self._take(f"<{axes}Q")
        kind, offset = self._take("<IQ")
        return RawTensor(name, dims[::-1], kind, offset)

    def _value(self, kind: GGUFValueType) -> int | float | bool | str | None:
        if kind == GGUFValueType.STRING:
            return self._text()
        if kind != GGUFValueType.ARRAY:
            return self._take("<" + _SCALARS[kind])[0]  # type: ignore[no-any-return]
        item, count = self._take("<IQ")
        if item == GGUFValueType.STRING:
            self._skip_texts(count)
        elif item == GGUFValueType.ARRAY:
            raise ValueError("arrays within arrays, which llama.cpp does not read either")
        else:
            self._skip(count * struct.calcsize("<" + _SCALARS[GGUFValueType(item)]))
        return None

    def _skip_texts(self, count: int) -> None:
        data, at, unpack = self._data, self.at, struct.Struct("<Q").unpack_from
        self._reach(8 * count)
        try:
            for _ in range(count):  # a vocabulary: keep this loop bare
                at += 8 + unpack(data, at)[0]
        except (struct.error, OverflowError):
            raise _ShortError from None
        self._skip(at - self.at)

    def _text(self) -> str:
        (length,) = self._take("<Q")
        start = self.at
        self._skip(length)
        return self._data[start : self.at].decode()

    def _take(self, layout: str) -> tuple[Any, ...]:
        start = self.at
        self._skip(struct.calcsize(layout))
        return struct.unpack_from(layout, self._data, start)

    def _skip(self, length: int) -> None:
        self._reach(length)
        self.at += length

    def _reach(self, length: int) -> None:
        if length > len(self._data) - self.at:
            raise _ShortError


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
