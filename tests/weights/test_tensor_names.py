import gguf
import pytest

from common.weights.random_pair import ROLES, layout_of
from common.weights.shapes import SHAPES
from common.weights.tensor_names import COMPUTED, checkpoint_name, gguf_name, is_left_out


@pytest.mark.parametrize("role", ROLES)
def test_names_go_both_ways(role: str) -> None:
    for tensor in layout_of(SHAPES["e2b"], role):
        ours = checkpoint_name(tensor.name)
        if tensor.name in COMPUTED:
            assert ours is None
        else:
            assert ours is not None
            assert gguf_name(ours) == tensor.name


def test_agrees_with_the_gguf_package() -> None:
    """The released package knows gemma4's names, though not the drafter's."""
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA4, 2)
    for tensor in layout_of(SHAPES["bench"], "target"):
        ours = checkpoint_name(tensor.name)
        if ours is not None:
            known = ours.removesuffix(".weight")
            assert table.get_name(known) == tensor.name.removesuffix(".weight")


def test_main_models_carry_a_prefix() -> None:
    name = "model.language_model.layers.12.self_attn.o_proj.weight"
    assert gguf_name(name) == "blk.12.attn_output.weight"
    assert gguf_name("model.language_model.norm.weight") == "output_norm.weight"


def test_unknown_names_have_no_place() -> None:
    assert gguf_name("model.layers.0.self_attn.bias") is None
    assert gguf_name("model.surprise.weight") is None
    assert checkpoint_name("blk.0.surprise.weight") is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.vision_tower.encoder.layers.0.mlp.up_proj.weight", True),
        ("model.audio_tower.output_proj.weight", True),
        ("model.embed_vision.embedding_projection.weight", True),
        ("masked_embedding.centroids.weight", True),
        ("model.embed_tokens.weight", False),
        ("model.language_model.embed_tokens_per_layer.weight", False),
    ],
)
def test_left_out(name: str, expected: bool) -> None:
    assert is_left_out(name) == expected
