"""Q8_0 blocks: 32 weights as one fp16 step and 32 whole numbers from -127 to 127."""

import numpy as np
import numpy.typing as npt

from common.weights import kernels

BLOCK_BYTES = 34


def quantize_bf16(bits: npt.NDArray[np.uint16], blocks: npt.NDArray[np.uint8]) -> None:
    """Round to Q8_0 as llama.cpp's converter does, to the bit: step amax/127, halves away from 0.

    bits: [groups, 32], bf16. blocks: [groups, 34], written.
    """
    kernels.quantize_q8_0(bits, blocks)
