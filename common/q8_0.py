"""Q8_0 blocks: 32 weights as one fp16 step and 32 whole numbers from -127 to 127."""

# ruff: noqa: ANN401
from typing import Any

import numpy as np
import numpy.typing as npt

from common.machine_code import half_bits, machine_code

BLOCK_BYTES = 34


def quantize_bf16(bits: npt.NDArray[np.uint16], blocks: npt.NDArray[np.uint8]) -> None:
    """Round to Q8_0 as llama.cpp's converter does, to the bit: step amax/127, halves away from 0.

    bits: [groups, 32], bf16. blocks: [groups, 34], written.
    """
    _quantize_bf16(bits, blocks)


def _quantize_bf16_body(bits: Any, blocks: Any) -> None:
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


_quantize_bf16 = machine_code(_quantize_bf16_body)
