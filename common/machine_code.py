"""Compiling: how loops over blocks become machine code, and fp16 in them.

Arguments of compiled functions are Any: numba, not mypy, finds their types.
"""

# ruff: noqa: ANN401
from collections.abc import Callable
from typing import Any

import numba
import numpy as np


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
