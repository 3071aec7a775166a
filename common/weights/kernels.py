"""Block kernels: Q4_0 and Q8_0 as machine code, one group of 32 values at a time.

What they compute is told in common/weights/q4_0.py and common/weights/q8_0.py, which are what to
call. Rounding x * (1 / step) in place of x / step cannot change what the step search finds: the two
differ only near a half level, and there no step is accepted (half a level is at least amax/16, the
tolerance amax/128).

Loops run to `width`, always 32 but not known when compiling: a loop of known length would be
unrolled before it could become vector instructions, and run at a third of the speed. Arguments are
Any: numba, not mypy, finds their types. All kernels share this file because numba's cache notices a
change only in the file of the kernel itself.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

OK, OFF_GRID, NOT_FINITE, STEP_RANGE = 0, 1, 2, 3
SMALLEST, LARGEST = np.float32(2**-20), np.float32(2**20)
"""Outside these largest magnitudes no step amax/m, m = 1..8, is an fp16 of 7 good bits or more."""


def machine_code(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile on first use; kept on disk where there is a place, which a read-only image lacks."""
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        compiled = numba.njit(**options)(function)
    return compiled


def _half_bits(x: Any) -> Any:
    bits = np.float32(x).view(np.uint32)
    if bits >= np.uint32(0x477FF000):  # 65520, half way from the largest fp16 to the next
        return np.uint16(0x7C00)
    if bits < np.uint32(0x38800000):  # below 2**-14: a whole number of 2**-24
        return np.uint16(np.rint(np.float64(x) * 16777216.0))
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    rounded = (bits + np.uint32(0xFFF) + odd) >> np.uint32(13)
    return np.uint16(rounded - np.uint32(112 << 10))  # exponent bias 127 to 15


def _half_value(bits: Any) -> Any:
    if bits >= np.uint16(0x7C00):
        return np.float32(np.inf)
    if bits < np.uint16(0x400):
        return np.float32(bits) * np.float32(2**-24)
    return np.uint32((np.uint32(bits) << np.uint32(13)) + np.uint32(112 << 23)).view(np.float32)


half_bits = machine_code(_half_bits)
"""fp16 bits of a float32 >= 0, ties to even, overflow to infinity: what np.float16(x) holds."""

half_value = machine_code(_half_value)
"""float32 of the fp16 with these bits, 0 to infinity; exact."""


def _fits_body(x: Any, q: Any, width: Any, inverse: Any, step: Any, tolerance: Any) -> Any:
    """Write the levels at `step` to q; whether all 32 values lie within `tolerance` of them."""
    misses = np.int32(0)
    for i in range(width):  # no early exit: a fixed loop becomes vector instructions
        level = np.rint(x[i] * inverse)
        level = np.float32(7) if level > np.float32(7) else level
        q[i] = level
        misses = np.int32(misses | np.int32(abs(x[i] - level * step) > tolerance))
    return misses == 0


def _sums_body(x: Any, width: Any, q: Any) -> Any:
    """Sum of x * q and of q * q over 32 values."""
    total = np.float64(0)
    squares = np.float32(0)
    for i in range(width):
        total += np.float64(x[i]) * np.float64(q[i])
        squares += q[i] * q[i]
    return total, np.float64(squares)


def _block_body(x: Any, width: Any, amax: Any, q: Any, blocks: Any, group: Any) -> Any:
    """One group of finite float32 `x` with largest magnitude `amax` to one block; its status.

    q: room for 32 float32.
    """
    if amax == np.float32(0):
        for i in range(18):
            blocks[group, i] = 0 if i < 2 else 0x88  # level 0 is stored as 8
        return OK
    if amax < SMALLEST or amax > LARGEST:
        return STEP_RANGE
    whole = np.float32(1) / amax
    r0, r1 = x[0] * whole, x[1] * whole
    inverse = np.float32(0)
    for m in range(1, 9):
        # Two values refuse most wrong steps at little cost. In units of the step the tolerance is
        # m/128; the part in 1,000 on top keeps rounding from refusing what the full test accepts.
        scale = np.float32(m)
        slack = scale * np.float32(1.001 / 128)
        v0, v1 = r0 * scale, r1 * scale
        off = (abs(v0 - np.rint(v0)) > slack) | (abs(v1 - np.rint(v1)) > slack)
        if off:
            continue
        if _fits(x, q, width, whole * scale, amax / scale, amax * np.float32(2**-7)):
            inverse = whole * scale
            break
    if inverse == np.float32(0):
        return OFF_GRID
    total, squares = _sums(x, width, q)
    step = np.float32(total / squares)
    half = half_bits(step)
    if not abs(half_value(half) - step) <= step * np.float32(2**-7):
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


def _repack_bf16_body(bits: Any, blocks: Any, status: Any) -> None:
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


def _repack_f32_body(values: Any, blocks: Any, status: Any) -> None:
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


def _blocks_to_bf16_body(blocks: Any, bits: Any) -> None:
    for group in range(blocks.shape[0]):
        half = np.uint16(blocks[group, 0]) | (np.uint16(blocks[group, 1]) << np.uint16(8))
        step = half_value(half)
        for i in range(16):
            byte = np.int32(blocks[group, 2 + i])
            low = np.float32(np.float32((byte & 15) - 8) * step).view(np.uint32)
            high = np.float32(np.float32((byte >> 4) - 8) * step).view(np.uint32)
            low += np.uint32(0x7FFF) + ((low >> np.uint32(16)) & np.uint32(1))
            high += np.uint32(0x7FFF) + ((high >> np.uint32(16)) & np.uint32(1))
            bits[group, i] = low >> np.uint32(16)
            bits[group, i + 16] = high >> np.uint32(16)


repack_bf16 = machine_code(_repack_bf16_body)
repack_f32 = machine_code(_repack_f32_body)
blocks_to_bf16 = machine_code(_blocks_to_bf16_body)


def _quantize_q8_0_body(bits: Any, blocks: Any) -> None:
    words = np.empty(32, np.uint32)
    x = words.view(np.float32)
    width = bits.shape[1]
    for group in range(bits.shape[0]):
        amax = np.float32(0)
        for i in range(width):
            words[i] = np.uint32(bits[group, i]) << np.uint32(16)
        for i in range(width):
            amax = max(amax, abs(x[i]))
        step = amax / np.float32(127)
        inverse = np.float32(0) if step == 0 else np.float32(1) / step
        half = half_bits(step)
        blocks[group, 0] = half & 0xFF
        blocks[group, 1] = half >> 8
        for i in range(width):
            scaled = np.float32(x[i] * inverse)
            size = abs(scaled)
            whole = np.floor(size)
            whole += np.floor(np.float32(2) * (size - whole))
            blocks[group, 2 + i] = np.uint8(np.int32(whole if scaled >= 0 else -whole))


quantize_q8_0 = machine_code(_quantize_q8_0_body)
