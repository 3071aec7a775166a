"""Q4_0 blocks: 32 weights as one fp16 step and 32 levels from -8 to 7, and how to find them.

Quantization-aware training left each group of 32 weights on at most 16 evenly spaced levels. The
search finds that grid instead of rounding to a new one: it tries the steps amax/m for m = 1..8,
takes the first whose levels lie within amax/128 of every value, refines it by least squares over
those levels and rounds it to fp16. A group with no such step has no exact Q4_0 form.

`repack` is compiled; `repack_numpy` says the same in plain NumPy, and the tests hold both equal
bit for bit.
"""

import numpy as np
import numpy.typing as npt

from common.weights import kernels
from common.weights.kernels import LARGEST, NOT_FINITE, OFF_GRID, OK, SMALLEST, STEP_RANGE

GROUP = 32
BLOCK_BYTES = 18

REASONS = {
    OFF_GRID: "lies on no 4-bit grid",
    NOT_FINITE: "holds NaN or infinity",
    STEP_RANGE: "has a step that fp16 cannot hold to 1 part in 128",
}
"""What is wrong with a group, by its status."""

Values = npt.NDArray[np.uint16] | npt.NDArray[np.float16] | npt.NDArray[np.float32]


def pack(levels: npt.NDArray[np.int8], steps: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """Pack levels into GGUF Q4_0 blocks.

    levels: [groups, 32], each -8..7. steps: [groups], rounded to fp16. Returns [groups, 18] bytes:
    the step, then 16 bytes holding value i in the low and value i + 16 in the high four bits, each
    level stored plus 8 (ggml's block_q4_0). Raises ValueError for a level out of range.
    """
    if levels.min(initial=0) < -8 or levels.max(initial=0) > 7:
        raise ValueError("levels must lie in -8..7")
    stored = (levels.astype(np.int16) + 8).astype(np.uint8)
    blocks = np.empty((levels.shape[0], BLOCK_BYTES), np.uint8)
    blocks[:, :2] = steps.astype("<f2").view(np.uint8).reshape(-1, 2)
    blocks[:, 2:] = stored[:, :16] | (stored[:, 16:] << 4)
    return blocks


def widen(values: Values) -> npt.NDArray[np.float32]:
    """Float32 of bf16 bits (uint16), f16 or f32; exact. Same shape."""
    if values.dtype == np.uint16:
        wide: npt.NDArray[np.float32] = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return wide
    return values.astype(np.float32)


def repack(values: Values, blocks: npt.NDArray[np.uint8], status: npt.NDArray[np.uint8]) -> None:
    """Find each group's exact Q4_0 block.

        values: [groups, 32]; bf16 bits as uint16, or f16, or f32. blocks: [groups, 18], written.
        status: [groups], written: OK, OFF_GRID, NOT_FINITE or STEP_RANGE; without OK a block means
    nothing. Releases the GIL: call it on slices from several threads.
    """
    if values.dtype == np.uint16:
        kernels.repack_bf16(values, blocks, status)
    else:
        kernels.repack_f32(np.ascontiguousarray(values, np.float32), blocks, status)


def repack_numpy(values: Values) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The reference for `repack`, one line a step. Returns blocks [groups, 18], status [groups]."""
    g = widen(values)
    with np.errstate(all="ignore"):  # what is not finite or out of range is reported by status
        amax = np.abs(g).max(axis=1)
        levels = np.zeros(g.shape, np.float32)
        status = np.full(len(g), OFF_GRID, np.uint8)
        for m in range(8, 0, -1):  # a smaller m overwrites: the first that fits wins
            step = (amax / np.float32(m))[:, None]
            q = np.clip(np.rint(g / step), -8, 7)
            fits = (np.abs(g - q * step) <= (amax * np.float32(2**-7))[:, None]).all(axis=1)
            levels[fits] = q[fits]
            status[fits] = OK
        total = (g.astype(np.float64) * levels).sum(axis=1)
        steps = (total / np.square(levels.astype(np.float64)).sum(axis=1)).astype(np.float32)
        halves = steps.astype(np.float16)
        error = np.abs(halves.astype(np.float32) - steps)
        status[(status == OK) & ~(error <= steps * np.float32(2**-7))] = STEP_RANGE
    status[(amax < SMALLEST) | (amax > LARGEST)] = STEP_RANGE
    zero = amax == 0
    levels[zero], halves[zero], status[zero] = 0, 0, OK
    status[~np.isfinite(g).all(axis=1)] = NOT_FINITE
    bad = status != OK
    levels[bad], halves[bad] = 0, 0
    return pack(levels.astype(np.int8), halves), status


def round_to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The bits of the nearest bf16, ties to even. Finite values only."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded: npt.NDArray[np.uint32] = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return rounded.astype(np.uint16)


def blocks_to_bf16(blocks: npt.NDArray[np.uint8], bits: npt.NDArray[np.uint16]) -> None:
    """`round_to_bf16` of what the blocks stand for, level * step. bits: [groups, 32], written."""
    kernels.blocks_to_bf16(blocks, bits)
