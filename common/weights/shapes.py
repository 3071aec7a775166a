"""Shapes: the layer sizes of Gemma 4, for pairs made of random weights and for memory estimates.

Sizes are those of the published configurations; a test holds the values they make to the published
sizes in bf16. What a drafter costs depends on them alone, not on what the weights say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

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
    """each such layer attends to everything, the others to the last `window` tokens"""
    hidden: int
    feed_forward: int
    wide_feed_forward: int
    """in layers that share an earlier layer's KV cache"""
    heads: int
    kv_heads: int
    kv_shared_layers: int
    vocabulary: int = VOCABULARY
    per_layer_embedding: int = 256
    """values a layer; 0 for a model without per-layer embeddings"""
    window: int = 512
    full_kv_heads: int | None = None
    """KV heads of full-attention layers; None: as the others"""
    keys_are_values: bool = False
    """whether full-attention layers have no value matrix and use their keys"""
    experts: int = 0
    experts_used: int = 0
    expert_feed_forward: int = 0
    drafter_layers: int = 4
    drafter_hidden: int = 256
    drafter_feed_forward: int = 2048
    drafter_heads: int = 4

    def is_sliding(self, layer: int) -> bool:
        return layer % self.full_every != self.full_every - 1

    def owns_kv(self, layer: int) -> bool:
        return layer < self.layers - self.kv_shared_layers

    def kv_heads_of(self, layer: int) -> int:
        return self.kv_heads if self.is_sliding(layer) else self.full_kv_heads or self.kv_heads

    def feed_forward_of(self, layer: int) -> int:
        return self.feed_forward if self.owns_kv(layer) else self.wide_feed_forward


class _Large(TypedDict):
    per_layer_embedding: int
    window: int
    keys_are_values: bool
    drafter_hidden: int
    drafter_feed_forward: int


# What 12B, 26B-A4B and 31B have in common. The drafter's sizes are published for 31B; the other two
# are taken to have the same but for its heads.
LARGE: _Large = {
    "per_layer_embedding": 0,
    "window": 1024,
    "keys_are_values": True,
    "drafter_hidden": 1024,
    "drafter_feed_forward": 8192,
}
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
    "12b": Shape(
        layers=48,
        full_every=6,
        hidden=3840,
        feed_forward=15360,
        wide_feed_forward=15360,
        heads=16,
        kv_heads=8,
        kv_shared_layers=0,
        full_kv_heads=1,
        **LARGE,
        drafter_heads=16,
    ),
    "26b": Shape(
        layers=30,
        full_every=6,
        hidden=2816,
        feed_forward=2112,
        wide_feed_forward=2112,
        heads=16,
        kv_heads=8,
        kv_shared_layers=0,
        full_kv_heads=2,
        experts=128,
        experts_used=8,
        expert_feed_forward=704,
        **LARGE,
        drafter_heads=16,
    ),
    "31b": Shape(
        layers=60,
        full_every=6,
        hidden=5376,
        feed_forward=21504,
        wide_feed_forward=21504,
        heads=32,
        kv_heads=16,
        kv_shared_layers=0,
        full_kv_heads=4,
        **LARGE,
        drafter_heads=32,
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
