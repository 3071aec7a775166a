"""Shapes: the layer sizes of the models we measure, for pairs made of random weights.

Sizes are those of the published configurations. What a drafter costs depends on them alone, not on
what the weights say.
"""

from collections.abc import Mapping
from dataclasses import dataclass

VOCABULARY = 262144
HEAD = 256
"""size of one head in sliding layers"""
FULL_HEAD = 512
"""size of one head in full-attention layers"""


@dataclass(frozen=True)
class Shape:
    """A gemma4 target and its gemma4-assistant drafter."""

    layers: int
    full_every: int
    """each such layer attends to everything, the others to a window of 512"""
    hidden: int
    feed_forward: int
    wide_feed_forward: int
    """in layers that share an earlier layer's KV cache"""
    heads: int
    kv_heads: int
    kv_shared_layers: int
    vocabulary: int = VOCABULARY
    per_layer_embedding: int = 256
    drafter_layers: int = 4
    drafter_hidden: int = 256
    drafter_feed_forward: int = 2048
    drafter_heads: int = 4

    def is_sliding(self, layer: int) -> bool:
        return layer % self.full_every != self.full_every - 1

    def owns_kv(self, layer: int) -> bool:
        return layer < self.layers - self.kv_shared_layers

    def feed_forward_of(self, layer: int) -> int:
        return self.feed_forward if self.owns_kv(layer) else self.wide_feed_forward


SHAPES: Mapping[str, Shape] = {
    "e2b": Shape(
        layers=35,
        full_every=5,
        hidden=1536,
        feed_forward=6144,
        wide_feed_forward=12288,
        heads=8,
        kv_heads=1,
        kv_shared_layers=20,
    ),
    "e4b": Shape(
        layers=42,
        full_every=6,
        hidden=2560,
        feed_forward=10240,
        wide_feed_forward=10240,
        heads=8,
        kv_heads=2,
        kv_shared_layers=18,
    ),
    # E2B cut to two layers: 1.2 GB of bf16, enough to time a repack and quick to make.
    "bench": Shape(
        layers=2,
        full_every=2,
        hidden=1536,
        feed_forward=6144,
        wide_feed_forward=12288,
        heads=8,
        kv_heads=1,
        kv_shared_layers=0,
    ),
}
"""By the name given to make_pair. A pair with a known answer is not made of random weights."""
