"""The exact repack: a checkpoint's own weights in the layout of the converter's Q8_0 file.

llama.cpp's converter knows the settings, the tokenizer and the order of tensors, but re-rounds the
weights. So everything except the weights is copied from its Q8_0 file, and the weights come from
the checkpoint: on their 4-bit grid (Q4_0) or as they are (bf16). Nothing is ever rounded anew: a
weight that the chosen type cannot hold stops the repack.
"""

import fnmatch
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_VERSION, GGMLQuantizationType, LlamaFileType

from common.errors import RigError
from common.weights import q4_0, slices
from common.weights.checkpoint import DTYPES, SourceTensor, read_into
from common.weights.gguf_file import GgufFile, GgufWriter, Setting, Tensor, number
from common.weights.tensor_names import (
    ARCHITECTURES,
    COMPUTED,
    checkpoint_name,
    gguf_name,
    is_left_out,
)

SLICE = 2**20
"""values handled at once by each thread: small enough for the processor's cache, and whole rows of
blocks of any type"""
SAMPLE = 2**15
"""values of each tensor that are compared with the Q8_0 file"""
KEEP_TYPES = {
    "f32": GGMLQuantizationType.F32,
    "f16": GGMLQuantizationType.F16,
    "bf16": GGMLQuantizationType.BF16,
}
Q4_0, Q8_0 = GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q8_0
F32, F16, BF16 = KEEP_TYPES.values()


@dataclass(frozen=True)
class Move:
    """One tensor of the output: its layout in the Q8_0 file, its new type, where values come from.

    source is None where the converter computed the tensor; it is then copied.
    """

    source: SourceTensor | None
    like: Tensor
    kind: GGMLQuantizationType


def plan(
    checkpoint: Mapping[str, SourceTensor],
    base: GgufFile,
    bf16: bool = False,
    keep: Sequence[tuple[str, str]] = (),
) -> list[Move]:
    """What becomes of each tensor of `base`, the converter's Q8_0 file.

    keep: pairs of a pattern over llama.cpp's tensor names (with * and ?) and f32, f16 or bf16.
    Raises RigError where checkpoint and file do not hold the same tensors in the same shapes, a
    row does not divide into groups of 32, or a pattern names nothing.
    """
    arch = base.value("general.architecture")
    if arch not in ARCHITECTURES:
        raise RigError(
            f"{base.path} is of architecture {arch}; expected {' or '.join(ARCHITECTURES)}"
        )
    if base.value("general.file_type") != LlamaFileType.MOSTLY_Q8_0:
        raise RigError(f"{base.path} is not a Q8_0 file; convert the snapshot with --outtype q8_0")
    for pattern, _ in keep:
        if not any(fnmatch.fnmatchcase(t.name, pattern) for t in base.tensors):
            raise RigError(f"--keep {pattern} names no tensor of {base.path}")
    sources = match(checkpoint, base)
    moves = []
    for like in base.tensors:
        kind = like.type
        if like.type != F32:
            kept = [name for pattern, name in keep if fnmatch.fnmatchcase(like.name, pattern)]
            kind = KEEP_TYPES[kept[0]] if kept else BF16 if bf16 else Q4_0
        if kind == Q4_0 and like.shape[-1] % q4_0.GROUP:
            raise RigError(
                f"{like.name}: rows of {like.shape[-1]} values do not divide into groups of 32; "
                f"leave it unquantized with --keep {like.name}=bf16"
            )
        moves.append(Move(sources[like.name], like, kind))
    return moves


def match(checkpoint: Mapping[str, SourceTensor], file: GgufFile) -> dict[str, SourceTensor | None]:
    """The checkpoint tensor behind each tensor of `file`, by llama.cpp's name; None if computed.

    Raises RigError for a tensor that only one of the two holds and for a shape that differs.
    """
    found: dict[str, SourceTensor] = {}
    names = {tensor.name for tensor in file.tensors}
    for source in checkpoint.values():
        if is_left_out(source.name):
            continue
        name = gguf_name(source.name)
        if name is None or name not in names:
            raise RigError(f"the snapshot holds {source.name}, which {file.path} has no place for")
        if name in found:
            raise RigError(f"the snapshot holds {name} twice: {found[name].name} and {source.name}")
        found[name] = source
    for tensor in file.tensors:
        if tensor.name in found:
            _same_shape(found[tensor.name], tensor, file.path)
        elif tensor.name not in COMPUTED:
            ours = checkpoint_name(tensor.name) or "that name"
            raise RigError(f"{file.path} holds {tensor.name}, but the snapshot has no {ours}")
    return {tensor.name: found.get(tensor.name) for tensor in file.tensors}


def repack(
    base: GgufFile,
    moves: Sequence[Move],
    out: Path,
    threads: int,
    progress: Callable[[int], object] = lambda _: None,
) -> None:
    """Write `out`: settings of `base`, weights of the checkpoint. progress gets values done.

    Holds a few slices in memory, whatever the model's size. Raises RigError, and leaves no file,
    for a group off its grid, a weight that its type cannot hold, weights that are not those of
    `base`, an output that exists or is an input, and a full disk.
    """
    kind = LlamaFileType.MOSTLY_Q4_0 if any(m.kind == Q4_0 for m in moves) else _unquantized(moves)
    settings = _settings(base.settings, kind)
    layout = [Tensor(m.like.name, m.like.shape, m.kind) for m in moves]
    inputs = {base.path.resolve()} | {m.source.path.resolve() for m in moves if m.source}
    if out.resolve() in inputs:
        raise RigError(f"{out} is one of the inputs; choose another name for the output")
    buffers = threading.local()
    with GgufWriter(out, settings, layout, base.alignment) as writer:

        def slice_done(number: int, start: int) -> int:
            move, target = moves[number], writer.tensors[number]
            count = min(SLICE, target.size - start)
            if move.source is None:
                writer.write(target, start, base.read(move.like, start, count))
                return count
            values = _buffer(buffers, "values", DTYPES[move.source.dtype], count)
            read_into(move.source, start, values)
            if start == 0:
                _same_weights(values[:SAMPLE], move, base)
            writer.write(target, start, _encode(values, move, start, buffers))
            return count

        sizes = [target.size for target in writer.tensors]
        slices.work(sizes, SLICE, slice_done, threads, progress)


def _encode(
    values: npt.NDArray[Any], move: Move, start: int, buffers: threading.local
) -> npt.NDArray[Any]:
    """One slice in the type of `move`, exactly."""
    if move.kind != Q4_0:
        return _unchanged(values, move)
    groups = len(values) // q4_0.GROUP
    blocks = _buffer(buffers, "blocks", np.uint8, groups * q4_0.BLOCK_BYTES)
    blocks = blocks.reshape(groups, q4_0.BLOCK_BYTES)
    status = _buffer(buffers, "status", np.uint8, groups)
    q4_0.repack(values.reshape(groups, q4_0.GROUP), blocks, status)
    if status.any():
        bad = int(np.flatnonzero(status)[0])
        first = bad * q4_0.GROUP
        group = values[first : first + q4_0.GROUP]
        raise RigError(_describe(move, start + first, q4_0.REASONS[int(status[bad])], group))
    return blocks


def _unchanged(values: npt.NDArray[Any], move: Move) -> npt.NDArray[Any]:
    """The values in f32, f16 or bf16; RigError if that changes one."""
    wide = q4_0.widen(values)
    if move.kind == F32:
        return wide
    if move.kind == BF16:
        narrow: npt.NDArray[Any] = values if values.dtype == np.uint16 else q4_0.round_to_bf16(wide)
    else:
        with np.errstate(over="ignore"):
            narrow = wide.astype(np.float16)
    back = q4_0.widen(narrow)
    if not np.array_equal(back, wide, equal_nan=True):
        at = int(np.flatnonzero(back != wide)[0])
        raise RigError(
            f"{move.like.name}: {move.kind.name.lower()} cannot hold {wide[at]!r} unchanged; "
            f"keep the tensor in f32 with --keep {move.like.name}=f32"
        )
    return narrow


def _describe(move: Move, first: int, reason: str, group: npt.NDArray[Any]) -> str:
    row, column = divmod(first, move.like.shape[-1])
    numbers = " ".join(f"{value:.9g}" for value in q4_0.widen(group))
    source = move.source.name if move.source else ""
    return (
        f"{move.like.name} ({source}): row {row}, group {column // q4_0.GROUP} {reason}; nothing "
        f"was written. Its values: {numbers}. To leave this tensor unquantized: "
        f"--keep {move.like.name}=bf16"
    )


def _same_shape(source: SourceTensor, tensor: Tensor, path: Path) -> None:
    ours, theirs = source.shape, tensor.shape
    if tensor.name == "token_embd.weight" and len(ours) == len(theirs) == 2:
        # The converter cuts embeddings that no token uses off the end.
        ours = (min(ours[0], theirs[0]), ours[1])
    if ours != theirs:
        raise RigError(
            f"{tensor.name} is {theirs} in {path} but {source.shape} in the snapshot: "
            "another model's file?"
        )


def _same_weights(values: npt.NDArray[Any], move: Move, base: GgufFile) -> None:
    """Stop if the Q8_0 file was made from other weights than these, the tensor's first."""
    wide = q4_0.widen(values)
    raw = base.read(move.like, 0, len(values))
    if move.like.type == F32:
        same = np.array_equal(raw.view(np.float32), wide, equal_nan=True)
    elif move.like.type == Q8_0:
        blocks = raw.reshape(-1, 34)
        steps = blocks[:, :2].copy().view("<f2").astype(np.float32)
        with np.errstate(invalid="ignore"):
            theirs = blocks[:, 2:].view(np.int8).astype(np.float32) * steps
        ours = wide.reshape(-1, 32)
        # Q8_0 rounds to amax/127: off by 0.5 of that, by its fp16 step's rounding (1 part in 2048),
        # and for a step below 2**-14 by up to 127 times 2**-25. Not finite: reported as such later.
        with np.errstate(invalid="ignore"):
            largest = np.abs(ours).max(axis=1, keepdims=True)
            near = np.abs(ours - theirs) <= 0.01 * largest + 127 * 2**-25
        finite = np.isfinite(ours).all(axis=1) & np.isfinite(theirs).all(axis=1)
        same = bool(near[finite].all())
    else:
        return
    if not same:
        raise RigError(
            f"{base.path} was made from other weights than this snapshot: {move.like.name} differs"
        )


def _settings(settings: Sequence[Setting], kind: LlamaFileType) -> list[Setting]:
    """Every setting as it is, but for the two that say how the weights are stored."""
    new = {
        "general.file_type": int(kind),
        "general.quantization_version": GGML_QUANT_VERSION,
    }
    kept = [number(s.key, new.pop(s.key)) if s.key in new else s for s in settings]
    return kept + [number(key, value) for key, value in new.items()]


def _unquantized(moves: Sequence[Move]) -> LlamaFileType:
    """The file type's name goes by the type of most weights."""
    types = {
        BF16: LlamaFileType.MOSTLY_BF16,
        F16: LlamaFileType.MOSTLY_F16,
        F32: LlamaFileType.ALL_F32,
    }
    values = {kind: sum(m.like.size for m in moves if m.kind == kind) for kind in types}
    return types[max(values, key=lambda kind: values[kind])]


def _buffer(
    buffers: threading.local, name: str, dtype: type[np.generic], count: int
) -> npt.NDArray[Any]:
    """This thread's array of that name: fresh memory for each slice would cost page faults."""
    key = f"{name}-{np.dtype(dtype).name}"
    if not hasattr(buffers, key):
        setattr(buffers, key, np.empty(SLICE, dtype))
    array: npt.NDArray[Any] = getattr(buffers, key)
    return array[:count]
