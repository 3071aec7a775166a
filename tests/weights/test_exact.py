import tracemalloc
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from common.errors import RigError
from common.weights import exact, q4_0
from common.weights.checkpoint import open_checkpoint
from common.weights.exact import plan, repack
from common.weights.gguf_file import open_gguf
from common.weights.random_pair import write_gguf, write_safetensors
from common.weights.shapes import SHAPES
from tests.helpers.blocks import values_of
from tests.helpers.small_model import Array, on_grid, weights, write_q8_0, write_snapshot
from tests.weights.test_checkpoint import shards

UP = "model.layers.0.mlp.up_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"
Keep = list[tuple[str, str]]


def run(
    folder: Path,
    tensors: dict[str, Array],
    *,
    bf16: bool = False,
    keep: Keep | None = None,
    dtype: str = "bfloat16",
    base: dict[str, Array] | None = None,
    threads: int = 2,
    name: str = "out.gguf",
) -> Path:
    """Snapshot and Q8_0 of `tensors` (or `base`), repacked; the output."""
    snapshot = write_snapshot(folder / "snapshot", tensors, dtype)
    q8 = open_gguf(write_q8_0(folder / "q8.gguf", base or tensors))
    out = folder / name
    repack(q8, plan(open_checkpoint(snapshot), q8, bf16, keep or []), out, threads)
    return out


def read(path: Path) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def dequantized(tensor: gguf.ReaderTensor) -> Array:
    values: Array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return values


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_matrix_equals_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, threads: int
) -> None:
    monkeypatch.setattr(exact, "SLICE", 256)
    found = read(run(tmp_path, weights(), dtype=dtype, threads=threads))
    for ours, theirs in (
        ("model.embed_tokens.weight", "token_embd.weight"),
        (UP, "blk.0.ffn_up.weight"),
        (DOWN, "blk.0.ffn_down.weight"),
    ):
        tensor, values = found[theirs], weights()[ours]
        assert tensor.tensor_type == gguf.GGMLQuantizationType.Q4_0
        blocks, status = q4_0.repack_numpy(values.reshape(-1, 32))
        assert not status.any()
        np.testing.assert_array_equal(tensor.data.reshape(-1, 18), blocks)
        expected = values_of(blocks).reshape(values.shape)
        np.testing.assert_array_equal(dequantized(tensor), expected)
        assert np.abs(expected - values).max() <= np.abs(values).max() * 2**-7
    norm = found["output_norm.weight"]
    assert norm.tensor_type == gguf.GGMLQuantizationType.F32
    np.testing.assert_array_equal(norm.data, weights()["model.norm.weight"])
    np.testing.assert_array_equal(found["rope_freqs.weight"].data, np.array([1, 1e30], np.float32))


def test_bf16_holds_the_original_weights(tmp_path: Path) -> None:
    found = read(run(tmp_path, weights(), bf16=True))
    tensor = found["blk.0.ffn_up.weight"]
    assert tensor.tensor_type == gguf.GGMLQuantizationType.BF16
    np.testing.assert_array_equal(dequantized(tensor), weights()[UP])


@pytest.mark.parametrize("bf16", [False, True])
def test_settings_are_copied_byte_for_byte(tmp_path: Path, bf16: bool) -> None:
    base = open_gguf(write_q8_0(tmp_path / "again.gguf", weights()))
    out = open_gguf(run(tmp_path, weights(), bf16=bf16))
    types = gguf.LlamaFileType
    assert out.value("general.file_type") == (types.MOSTLY_BF16 if bf16 else types.MOSTLY_Q4_0)
    assert out.value("general.quantization_version") == gguf.GGML_QUANT_VERSION
    assert [s.key for s in out.settings] == [s.key for s in base.settings]
    for ours, theirs in zip(out.settings, base.settings, strict=True):
        assert ours.raw == theirs.raw or ours.key == "general.file_type"
    assert [t.name for t in out.tensors] == [t.name for t in base.tensors]


def test_quantization_version_is_added_where_absent() -> None:
    found = exact._settings([], gguf.LlamaFileType.MOSTLY_Q4_0)
    assert {s.key: s.value for s in found} == {
        "general.file_type": 2,
        "general.quantization_version": 2,
    }


def test_keep_leaves_tensors_unquantized(tmp_path: Path) -> None:
    tensors = weights()
    rng = np.random.default_rng(5)
    off = rng.normal(0, 1, tensors[UP].shape).astype(np.float32)
    tensors[UP] = q4_0.widen(q4_0.round_to_bf16(off))
    keep = [("blk.*.ffn_up.weight", "bf16"), ("blk.0.ffn_down.weight", "f32")]
    out = run(tmp_path, tensors, keep=keep)
    found = read(out)
    assert found["blk.0.ffn_up.weight"].tensor_type == gguf.GGMLQuantizationType.BF16
    assert found["blk.0.ffn_down.weight"].tensor_type == gguf.GGMLQuantizationType.F32
    assert found["token_embd.weight"].tensor_type == gguf.GGMLQuantizationType.Q4_0
    np.testing.assert_array_equal(dequantized(found["blk.0.ffn_up.weight"]), tensors[UP])
    np.testing.assert_array_equal(found["blk.0.ffn_down.weight"].data, tensors[DOWN])
    assert open_gguf(out).value("general.file_type") == gguf.LlamaFileType.MOSTLY_Q4_0


def test_keep_refuses_a_type_too_narrow(tmp_path: Path) -> None:
    tensors = weights()
    tensors[UP][3, 4] = 2.0**17
    with pytest.raises(RigError, match=r"ffn_up\.weight: f16 cannot hold .*131072.* unchanged"):
        run(tmp_path, tensors, keep=[("blk.0.ffn_up.weight", "f16")])


def test_bf16_refuses_what_it_would_round(tmp_path: Path) -> None:
    tensors = weights()
    tensors[UP][3, 4] = 1.0001
    with pytest.raises(RigError, match=r"ffn_up\.weight: bf16 cannot hold .*1\.0001.* unchanged"):
        run(tmp_path, tensors, bf16=True, dtype="float32")


def test_keep_that_names_nothing(tmp_path: Path) -> None:
    with pytest.raises(RigError, match=r"--keep blk\.7\.\* names no tensor"):
        run(tmp_path, weights(), keep=[("blk.7.*", "bf16")])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({5: 0.0}, "lies on no 4-bit grid"),
        ({5: np.nan}, "holds NaN or infinity"),
        ({5: np.inf}, "holds NaN or infinity"),
    ],
)
def test_a_bad_group_stops_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[int, float], message: str
) -> None:
    monkeypatch.setattr(exact, "SLICE", 256)
    tensors = weights()
    tensors[UP][13, 32:] = np.arange(32) * 0.25 - 4
    tensors[UP][13, 37] = 0.3125 if values[5] == 0 else values[5]
    with pytest.raises(RigError) as caught:
        run(tmp_path, tensors)
    text = str(caught.value)
    assert f"blk.0.ffn_up.weight ({UP}): row 13, group 1 {message}" in text
    assert "-4 -3.75 -3.5 -3.25 -3" in text
    assert "--keep blk.0.ffn_up.weight=bf16" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q8.gguf", "snapshot"]


def test_zero_and_constant_groups(tmp_path: Path) -> None:
    tensors = weights()
    tensors[UP][0] = 0
    tensors[UP][1] = 0.125
    tensors[UP][2] = -0.125
    found = dequantized(read(run(tmp_path, tensors))["blk.0.ffn_up.weight"])
    np.testing.assert_array_equal(found[:3], tensors[UP][:3])


def test_rows_that_are_no_multiple_of_32(tmp_path: Path) -> None:
    tensors = weights()
    tensors[DOWN] = on_grid(np.random.default_rng(1), 64, 32)[:, :24].copy()
    with pytest.raises(RigError, match=r"ffn_down\.weight: rows of 24 values do not divide"):
        run(tmp_path, tensors)
    (tmp_path / "q8.gguf").unlink()
    found = read(run(tmp_path, tensors, keep=[("blk.0.ffn_down.weight", "bf16")]))
    np.testing.assert_array_equal(dequantized(found["blk.0.ffn_down.weight"]), tensors[DOWN])


def test_missing_tensor(tmp_path: Path) -> None:
    tensors = weights()
    del tensors[DOWN]
    with pytest.raises(RigError, match=f"holds blk.0.ffn_down.weight, .* has no {DOWN}"):
        run(tmp_path, tensors, base=weights())


def test_extra_tensor(tmp_path: Path) -> None:
    base = weights()
    del base[DOWN]
    with pytest.raises(RigError, match=f"holds {DOWN}, which .* has no place for"):
        run(tmp_path, weights(), base=base)


def test_tensor_of_unknown_name(tmp_path: Path) -> None:
    tensors = weights() | {"model.surprise.weight": np.ones(3, np.float32)}
    with pytest.raises(RigError, match=r"holds model\.surprise\.weight"):
        run(tmp_path, tensors, base=weights())


def test_one_tensor_under_two_names(tmp_path: Path) -> None:
    tensors = weights()
    tensors["model.language_model.norm.weight"] = tensors["model.norm.weight"]
    with pytest.raises(RigError, match=r"holds output_norm\.weight twice"):
        run(tmp_path, tensors, base=weights())


def test_tensors_the_converter_leaves_out(tmp_path: Path) -> None:
    more = {"masked_embedding.centroids.weight": np.ones((3, 5), np.float32)}
    assert "token_embd.weight" in read(run(tmp_path, weights() | more, base=weights()))


def test_shape_that_differs(tmp_path: Path) -> None:
    tensors = weights()
    tensors[UP] = tensors[UP][:16]
    with pytest.raises(RigError, match=r"ffn_up\.weight is \(32, 64\) in .* \(16, 64\)"):
        run(tmp_path, tensors, base=weights())


def test_unused_embeddings_may_be_cut_off(tmp_path: Path) -> None:
    tensors = weights()
    whole = tensors["model.embed_tokens.weight"]
    cut = weights() | {"model.embed_tokens.weight": whole[:40]}
    found = dequantized(read(run(tmp_path, tensors, base=cut))["token_embd.weight"])
    blocks, _ = q4_0.repack_numpy(whole[:40].reshape(-1, 32))
    np.testing.assert_array_equal(found.reshape(-1, 32), values_of(blocks))


@pytest.mark.parametrize("changed", [UP, "model.norm.weight"])
def test_q8_0_of_another_model(tmp_path: Path, changed: str) -> None:
    other = weights() | {changed: weights(seed=9)[changed]}
    with pytest.raises(RigError, match="was made from other weights than this snapshot"):
        run(tmp_path, weights(), base=other)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("scale", [2.0**-3, 2.0**-6])
def test_small_weights_are_no_other_model(tmp_path: Path, scale: float) -> None:
    """Q8_0's fp16 steps lose digits where weights are small; ours are 16 times as large."""
    tensors = weights()
    tensors[UP] = tensors[UP] * np.float32(scale)
    found = dequantized(read(run(tmp_path, tensors))["blk.0.ffn_up.weight"])
    assert np.abs(found - tensors[UP]).max() <= np.abs(tensors[UP]).max() * 2**-7


def test_file_that_is_not_q8_0(tmp_path: Path) -> None:
    snapshot = write_snapshot(tmp_path / "snapshot", weights())
    path = write_q8_0(tmp_path / "f16.gguf", weights(), file_type=gguf.LlamaFileType.MOSTLY_F16)
    with pytest.raises(RigError, match="is not a Q8_0 file"):
        plan(open_checkpoint(snapshot), open_gguf(path))


def test_file_of_another_architecture(tmp_path: Path) -> None:
    snapshot = write_snapshot(tmp_path / "snapshot", weights())
    path = write_q8_0(tmp_path / "llama.gguf", weights(), arch="llama")
    with pytest.raises(RigError, match="is of architecture llama; expected gemma4 or"):
        plan(open_checkpoint(snapshot), open_gguf(path))


@pytest.mark.parametrize("name", ["q8.gguf", "snapshot/model.safetensors", "snapshot/../q8.gguf"])
def test_output_that_is_an_input(tmp_path: Path, name: str) -> None:
    with pytest.raises(RigError, match="is one of the inputs"):
        run(tmp_path, weights(), name=name)
    assert open_gguf(tmp_path / "q8.gguf").tensors
    assert open_checkpoint(tmp_path / "snapshot")


def test_output_that_exists(tmp_path: Path) -> None:
    (tmp_path / "out.gguf").write_text("mine")
    with pytest.raises(RigError, match="exists"):
        run(tmp_path, weights())
    assert (tmp_path / "out.gguf").read_text() == "mine"


def test_shards_give_the_same_bytes(tmp_path: Path) -> None:
    whole = run(tmp_path, weights())
    folder = tmp_path / "sharded"
    shards(folder)
    q8 = open_gguf(tmp_path / "q8.gguf")
    out = tmp_path / "sharded.gguf"
    repack(q8, plan(open_checkpoint(folder), q8), out, 2)
    assert out.read_bytes() == whole.read_bytes()


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    """A 64 MB matrix repacks in a few slices' worth of arrays."""
    shape = replace(SHAPES["bench"], vocabulary=2**17, drafter_layers=1)
    (tmp_path / "snapshot").mkdir()
    write_safetensors(
        tmp_path / "snapshot" / "model.safetensors", shape, "drafter", 2, lambda _: None
    )
    write_gguf(tmp_path / "q8.gguf", shape, "drafter", "q8_0", 2, lambda _: None)
    base = open_gguf(tmp_path / "q8.gguf")
    moves = plan(open_checkpoint(tmp_path / "snapshot"), base)
    assert max(move.like.size for move in moves) == 2**25
    tracemalloc.start()
    repack(base, moves, tmp_path / "out.gguf", 2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 2 * exact.SLICE < peak < 16 * exact.SLICE  # the matrix alone is 64
