import gguf
import numpy as np

from common.weights import q4_0, q8_0


def test_equals_the_converters_rounding_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, (3000, 32)) * 10.0 ** rng.uniform(-7, 3, (3000, 1))
    values[:10] = 0
    # Multiples of amax / 254 meet the halves, which go away from zero.
    values[10:1000] = rng.integers(-127, 128, (990, 32)) / 2
    values[10:1000, 0] = 127
    bits = q4_0.round_to_bf16(values.astype(np.float32))
    blocks = np.empty((len(bits), q8_0.BLOCK_BYTES), np.uint8)
    q8_0.quantize_bf16(bits, blocks)
    expected = gguf.quants.quantize(q4_0.widen(bits), gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(blocks, expected)
