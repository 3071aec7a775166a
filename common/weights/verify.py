"""A check: how near a GGUF file's weights are to the checkpoint they were made from."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.quants import dequantize

from common.errors import RigError, shown
from common.weights import q4_0
from common.weights.checkpoint import SourceTensor, read
from common.weights.exact import SLICE, match
from common.weights.gguf_file import GgufFile, Tensor


@dataclass(frozen=True)
class Row:
    """One tensor, or several added up.

    identical: share of values equal to the checkpoint's after going back to its type (-0 equals 0:
    Q4_0 has one zero). relative_error: root of the summed squares of the differences over that of
    the values. Both None for a tensor that the converter computes.
    """

    name: str
    type: str
    values: int
    bytes: int
    identical: float | None
    relative_error: float | None


@dataclass(frozen=True)
class _Sums:
    equal: int = 0
    values: int = 0
    bytes: int = 0
    error: float = 0.0
    total: float = 0.0

    def __add__(self, other: "_Sums") -> "_Sums":
        ours, theirs = asdict(self), asdict(other)
        return _Sums(**{key: ours[key] + theirs[key] for key in ours})

    def row(self, name: str, kind: str) -> Row:
        if not self.values:
            return Row(name, kind, 0, self.bytes, None, None)
        error = math.sqrt(self.error / self.total) if self.total else math.sqrt(self.error)
        return Row(name, kind, self.values, self.bytes, self.equal / self.values, error)


def check(
    checkpoint: Mapping[str, SourceTensor],
    file: GgufFile,
    progress: Callable[[int], object] = lambda _: None,
) -> tuple[list[Row], list[Row]]:
    """Compare every tensor of `file` with the checkpoint: rows by tensor, and totals by type.

    Decoding is the gguf package's, not ours. Raises RigError where the two do not hold the same
    tensors in the same shapes.
    """
    sources = match(checkpoint, file)
    rows: list[Row] = []
    by_type: dict[str, _Sums] = {}
    for tensor in file.tensors:
        source = sources[tensor.name]
        sums = _Sums(bytes=tensor.nbytes)
        if source is not None:
            for start in range(0, tensor.size, SLICE):
                count = min(SLICE, tensor.size - start)
                stored = _decoded(file, tensor, start, count)
                sums += _compare(stored.reshape(-1).astype(np.float32), source, start)
                progress(count)
        kind = tensor.type.name
        rows.append(sums.row(tensor.name, kind))
        by_type[kind] = by_type.get(kind, _Sums()) + sums
    totals = [sums.row(f"all {kind}", kind) for kind, sums in by_type.items()]
    return rows, totals


def _decoded(file: GgufFile, tensor: Tensor, start: int, count: int) -> npt.NDArray[Any]:
    raw = file.read(tensor, start, count)
    try:
        return dequantize(raw, tensor.type)
    except NotImplementedError:
        raise RigError(
            f"{file.path}: {shown(tensor.name)} is {tensor.type.name}, which the gguf package does "
            "not decode, so it cannot be compared"
        ) from None


def _compare(stored: "np.typing.NDArray[np.float32]", source: SourceTensor, start: int) -> _Sums:
    ours = q4_0.widen(read(source, start, len(stored)))
    if source.dtype == "BF16":
        back = q4_0.widen(q4_0.round_to_bf16(stored))
    elif source.dtype == "F16":
        back = stored.astype(np.float16).astype(np.float32)
    else:
        back = stored
    wide = ours.astype(np.float64)
    error = np.square(wide - stored).sum()
    return _Sums(
        int((back == ours).sum()), len(stored), 0, float(error), float(np.square(wide).sum())
    )
