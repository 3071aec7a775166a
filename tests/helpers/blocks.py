"""Reading Q4_0 blocks: levels and steps, and the values they stand for."""

import gguf
import numpy as np
import numpy.typing as npt


def unpack(blocks: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """The levels [groups, 32] and steps [groups] of blocks [groups, 18]."""
    steps = np.ascontiguousarray(blocks[:, :2]).view("<f2").reshape(-1).astype(np.float16)
    nibbles = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
    return nibbles.astype(np.int8) - np.int8(8), steps


def values_of(blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """What blocks stand for, as llama.cpp's own package reads them."""
    values: npt.NDArray[np.float32] = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q4_0)
    return values
