"""Q4_0 blocks: 32 weights as one fp16 step and 32 levels from -8 to 7, and the exact search for both.

Quantization-aware training left each group of 32 weights on at most 16 evenly spaced levels. The
search finds that grid instead of rounding to a new one: it tries the steps amax/m for m = 1..8,
takes the first whose levels lie within amax/128 of every value, refines it by least squares over
those levels and rounds it to fp16. A group with no such step has no exact Q4_0 form.

`repack` is compiled; `repack_numpy` says the same in plain NumPy, and the tests hold both equal
bit for bit. Rounding x * (1 / step) or x / step cannot matter: the two differ only near a half
level, and there no step is accepted (half a level is at least amax/16).
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

GROUP = 32
BLOCK_BYTES = 18

# Outside these largest magnitudes no step amax/m, m = 1..8, is an fp16 of 7 good bits or more.
SMALLEST, LARGEST = np.float32(2**-20), np.float32(2**20)

OK, OFF_GRID, NOT_FINITE, STEP_RANGE = 0, 1, 2, 3
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


def unpack(blocks: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """The levels [groups, 32] and steps [groups] of blocks [groups, 18]."""
    steps = np.ascontiguousarray(blocks[:, :2]).view("<f2").reshape(-1).astype(np.float16)
    nibbles = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
    return nibbles.astype(np.int8) - np.int8(8), steps


def dequantize(blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """The values [groups, 32] that blocks [groups, 18] stand for: level * step, in float32."""
    levels, steps = unpack(blocks)
    return levels.astype(np.float32) * steps.astype(np.float32)[:, None]


def widen(values: Values) -> npt.NDArray[np.float32]:
    """Float32 of bf16 bits (uint16), f16 or f32; exact. Same shape."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32)


def repack(
    values: Values, blocks: npt.NDArray[np.uint8], status: npt.NDArray[np.uint8]
) -> None:
    """Find each group's exact Q4_0 block.

    values: [groups, 32]; bf16 bits as uint16, or f16, or f32. blocks: [groups, 18], written.
    status: [groups], written: # Outside these largest magnitudes no step amax/m, m = 1..8, is an fp16 of 7 good bits or more.
SMALLEST, LARGEST = np.float32(2**-20), np.float32(2**20)

OK, OFF_GRID, NOT_FINITE or STEP_RANGE; a group that is not OK has
    no meaningful block. Releases the GIL: call it on slices from several threads.
    """
    if values.dtype == np.uint16:
        _repack_bf16(values, blocks, status)
    else:
        _repack_f32(np.ascontiguousarray(values, np.float32), blocks, status)


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
    return ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)


def blocks_to_bf16(blocks: npt.NDArray[np.uint8], bits: npt.NDArray[np.uint16]) -> None:
    """`round_to_bf16(dequantize(blocks))`, compiled. bits: [groups, 32], written."""
    _blocks_to_bf16(blocks, bits)


def machine_code(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Machine code, kept on disk where there is a place for it: a read-only container has none."""
    try:
        return numba.njit(nogil=True, cache=True, error_model="numpy", **options)(function)
    except RuntimeError:
        return numba.njit(nogil=True, error_model="numpy", **options)(function)


def _half_bits_body(x: np.float32) -> np.uint16:
    """fp16 bits of a float32 >= 0, ties to even, overflow to infinity: what np.float16(x) gives."""
    bits = np.float32(x).view(np.uint32)
    if bits >= np.uint32(0x477FF000):  # 65520, half way from the largest fp16 to the next
        return np.uint16(0x7C00)
    if bits < np.uint32(0x38800000):  # below 2**-14: a whole number of 2**-24
        return np.uint16(np.rint(np.float64(x) * 16777216.0))
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    rounded = (bits + np.uint32(0xFFF) + odd) >> np.uint32(13)
    return np.uint16(rounded - np.uint32(112 << 10))  # exponent bias 127 to 15


def _half_value_body(bits: np.uint16) -> np.float32:
    """float32 of fp16 bits >= 0; exact."""
    if bits >= np.uint16(0x7C00):
        return np.float32(np.inf)
    if bits < np.uint16(0x400):
        return np.float32(bits) * np.float32(2**-24)
    return np.uint32((np.uint32(bits) << np.uint32(13)) + np.uint32(112 << 23)).view(np.float32)


half_bits = machine_code(_half_bits_body)
_half_value = machine_code(_half_value_body)


def _fits_body(x, width, inverse, step, tolerance):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Whether all 32 values lie within `tolerance` of a level of `step`."""
    misses = np.int32(0)
    for i in range(width):  # no early exit: a fixed loop becomes vector instructions
        level = np.rint(x[i] * inverse)
        level = np.float32(7) if level > np.float32(7) else level
        misses = np.int32(misses | np.int32(abs(x[i] - level * step) > tolerance))
    return misses == 0


def _sums_body(x, width, q):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Sum of x * q and of q * q over 32 values."""
    total = np.float64(0)
    squares = np.float32(0)
    for i in range(width):
        total += np.float64(x[i]) * np.float64(q[i])
        squares += q[i] * q[i]
    return total, np.float64(squares)


def _block_body(x, width, amax, q, blocks, group):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """One group of finite float32 `x` with largest magnitude `amax` to one block; its status.

    q: room for 32 float32.
    """
    if amax == np.float32(0):
        for i in range(BLOCK_BYTES):
            blocks[group, i] = 0 if i < 2 else 0x88
        return OK
    if amax < SMALLEST or amax > LARGEST:
        return STEP_RANGE
    whole = np.float32(1) / amax
    r0, r1, r2, r3 = x[0] * whole, x[1] * whole, x[2] * whole, x[3] * whole
    inverse = np.float32(0)
    for m in range(1, 9):
        # Four values refuse most wrong steps at little cost. In units of the step the tolerance is
        # m/128; the part in 1,000 on top keeps rounding from refusing what the full test accepts.
        scale = np.float32(m)
        slack = scale * np.float32(1.001 / 128)
        v0, v1, v2, v3 = r0 * scale, r1 * scale, r2 * scale, r3 * scale
        off = (abs(v0 - np.rint(v0)) > slack) | (abs(v1 - np.rint(v1)) > slack)
        off |= (abs(v2 - np.rint(v2)) > slack) | (abs(v3 - np.rint(v3)) > slack)
        if off:
            continue
        if _fits(x, width, whole * scale, amax / scale, amax * np.float32(2**-7)):
            inverse = whole * scale
            break
    if inverse == np.float32(0):
        return OFF_GRID
    for i in range(width):
        level = np.rint(x[i] * inverse)
        q[i] = np.float32(7) if level > np.float32(7) else level
    total, squares = _sums(x, width, q)
    step = np.float32(total / squares)
    half = half_bits(step)
    if not abs(_half_value(half) - step) <= step * np.float32(2**-7):
        return STEP_RANGE
    blocks[group, 0] = half & 0xFF
    blocks[group, 1] = half >> 8
    for i in range(width // 2):
        low = np.int32(np.int32(q[i]) + np.int32(8))
        high = np.int32(np.int32(q[i + 16]) + np.int32(8))
        blocks[group, 2 + i] = np.uint8(low | np.int32(high << np.int32(4)))
    return OK


_fits = machine_code(_fits_body)
# reassoc lets the sums of 32 run in vector lanes. It changes no bit: a product of a bf16, f16 or
# f32 value with a level needs at most 28 of float64's 53 bits, and 32 of them of nearly equal
# exponent (a value with a level other than 0 is at least amax/9) add without rounding.
_sums = machine_code(_sums_body, fastmath={"reassoc", "nsz"})
_block = machine_code(_block_body)


def _repack_bf16_body(bits, blocks, status):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    words = np.empty(32, np.uint32)
    x = words.view(np.float32)
    q = np.empty(32, np.float32)
    width = bits.shape[1]
    for group in range(bits.shape[0]):
        largest = np.uint32(0)
        for i in range(width):
            words[i] = np.uint32(bits[group, i]) << np.uint32(16)
        for i in range(width):  # magnitudes of floats order as their bits do
            largest = max(largest, np.uint32(words[i] & np.uint32(0x7FFFFFFF)))
        if largest >= np.uint32(0x7F800000):
            status[group] = NOT_FINITE
        else:
            status[group] = _block(x, width, np.uint32(largest).view(np.float32), q, blocks, group)


def _repack_f32_body(values, blocks, status):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    q = np.empty(32, np.float32)
    width = values.shape[1]
    for group in range(values.shape[0]):
        amax = np.float32(0)
        finite = True
        for i in range(width):
            amax = max(amax, abs(values[group, i]))
            finite = finite and np.isfinite(values[group, i])
        if finite:
            status[group] = _block(values[group], width, amax, q, blocks, group)
        else:
            status[group] = NOT_FINITE


def _blocks_to_bf16_body(blocks, bits):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    for group in range(blocks.shape[0]):
        half = np.uint16(blocks[group, 0]) | (np.uint16(blocks[group, 1]) << np.uint16(8))
        step = _half_value(half)
        for i in range(16):
            byte = np.int32(blocks[group, 2 + i])
            low = np.float32(np.float32((byte & 15) - 8) * step).view(np.uint32)
            high = np.float32(np.float32((byte >> 4) - 8) * step).view(np.uint32)
            low += np.uint32(0x7FFF) + ((low >> np.uint32(16)) & np.uint32(1))
            high += np.uint32(0x7FFF) + ((high >> np.uint32(16)) & np.uint32(1))
            bits[group, i] = low >> np.uint32(16)
            bits[group, i + 16] = high >> np.uint32(16)


_repack_bf16 = machine_code(_repack_bf16_body)
_repack_f32 = machine_code(_repack_f32_body)
_blocks_to_bf16 = machine_code(_blocks_to_bf16_body)
