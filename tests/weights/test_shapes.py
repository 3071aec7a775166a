import pytest

from common.weights.random_pair import layout_of
from common.weights.shapes import FULL_HEAD, SHAPES


@pytest.mark.parametrize(
    ("name", "layers", "full", "owning", "kib_a_token"),
    [("e2b", 35, 7, 15, 6), ("e4b", 42, 7, 24, 16)],
)
def test_published_layers(name: str, layers: int, full: int, owning: int, kib_a_token: int) -> None:
    shape = SHAPES[name]
    every = range(shape.layers)
    assert len(every) == layers
    assert sum(not shape.is_sliding(layer) for layer in every) == full
    assert sum(shape.owns_kv(layer) for layer in every) == owning
    # Only full-attention layers that own their cache grow with every token: keys and values, f16.
    growing = sum(shape.owns_kv(layer) and not shape.is_sliding(layer) for layer in every)
    assert growing * 2 * shape.kv_heads * FULL_HEAD * 2 == kib_a_token * 1024
    assert not shape.is_sliding(shape.layers - 1)


@pytest.mark.parametrize(("name", "published"), [("e2b", 10.2), ("e4b", 16.0)])
def test_size_is_the_published_one_less_sight_and_hearing(name: str, published: float) -> None:
    gigabytes = sum(2 * tensor.size for tensor in layout_of(SHAPES[name], "target")) / 1e9
    assert 0.88 * published < gigabytes < published


@pytest.mark.parametrize("name", ["e2b", "e4b"])
def test_drafter_is_the_published_one(name: str) -> None:
    """49 tensors, 23 matrices, 86-87% of the values in the embedding; 59 MB with a tokenizer."""
    tensors = layout_of(SHAPES[name], "drafter")
    matrices = [tensor for tensor in tensors if len(tensor.shape) == 2]
    assert (len(tensors), len(matrices)) == (49, 23)
    values = sum(tensor.size for tensor in matrices)
    embedding = next(t.size for t in matrices if t.name == "token_embd.weight")
    assert 0.86 <= embedding / values <= 0.87
    assert 43e6 < values * 18 / 32 < 44.5e6
