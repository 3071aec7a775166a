"""Q4_0 blocks: 32 weights as one fp16 step and 32 levels from -8 to 7."""

import numpy as np
import numpy.typing as npt

GROUP = 32
BLOCK_BYTES = 18


def pack(levels: npt.NDArray[np.int8], steps: npt.NDArray[np.float16]) -> npt.NDArray[np.uint8]:
    """Pack levels into GGUF Q4_0 blocks.

    levels: [groups, 32], each -8..7. steps: [groups]. Returns [groups, 18] bytes: the fp16 step,
    then 16 bytes holding value i in the low and value i + 16 in the high four bits, each level
    stored plus 8 (ggml's block_q4_0).
    """
    if levels.min(initial=0) < -8 or levels.max(initial=0) > 7:
        raise ValueError("levels must lie in -8..7")
    stored = (levels.astype(np.int16) + 8).astype(np.uint8)
    blocks = np.empty((levels.shape[0], BLOCK_BYTES), np.uint8)
    blocks[:, :2] = steps.astype("<f2").view(np.uint8).reshape(-1, 2)
    blocks[:, 2:] = stored[:, :16] | (stored[:, 16:] << 4)
    return blocks
