from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors import safe_open

from common.errors import RigError
from common.weights import random_pair
from common.weights.checkpoint import open_checkpoint
from common.weights.exact import plan, repack
from common.weights.gguf_file import open_gguf
from common.weights.random_pair import FORMATS, ROLES, write_gguf, write_safetensors
from common.weights.shapes import SHAPES, Shape
from common.weights.verify import check
from tests.helpers.blocks import unpack

SMALL: Shape = replace(
    SHAPES["e2b"],
    layers=3,
    full_every=3,
    hidden=64,
    feed_forward=64,
    wide_feed_forward=128,
    heads=1,
    kv_shared_layers=1,
    vocabulary=512,
    per_layer_embedding=32,
    drafter_layers=2,
    drafter_hidden=32,
    drafter_feed_forward=64,
    drafter_heads=1,
)


def quiet(_: int) -> None:
    pass


@pytest.fixture(scope="module", params=ROLES)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model in every format."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "snapshot").mkdir()
    for kind in FORMATS:
        write_gguf(folder / f"{kind}.gguf", SMALL, request.param, kind, 2, quiet)
    path = folder / "snapshot" / "model.safetensors"
    write_safetensors(path, SMALL, request.param, 2, quiet)
    return folder


def test_gguf_package_reads_it(files: Path) -> None:
    for kind, (weight_type, file_type) in FORMATS.items():
        reader = gguf.GGUFReader(files / f"{kind}.gguf")
        assert reader.fields["general.file_type"].contents() == file_type
        assert len(reader.fields["tokenizer.ggml.tokens"].contents()) == SMALL.vocabulary
        for tensor in reader.tensors:
            matrix = len(tensor.shape) == 2
            expected = weight_type if matrix else gguf.GGMLQuantizationType.F32
            assert tensor.tensor_type == expected
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            assert np.isfinite(values).all()
            if matrix:
                assert 0.01 < values.std() < 0.04


def test_safetensors_package_reads_it(files: Path) -> None:
    found = open_checkpoint(files / "snapshot")
    with safe_open(files / "snapshot" / "model.safetensors", "numpy") as file:
        assert set(file.keys()) == set(found)
        for name, tensor in found.items():
            part = file.get_slice(name)
            assert part.get_dtype() == "BF16"
            assert tuple(part.get_shape()) == tensor.shape


def test_repack_brings_every_level_back(files: Path, tmp_path: Path) -> None:
    base = open_gguf(files / "q8_0.gguf")
    moves = plan(open_checkpoint(files / "snapshot"), base)
    repack(base, moves, tmp_path / "exact.gguf", 2)
    ours = gguf.GGUFReader(tmp_path / "exact.gguf").tensors
    theirs = gguf.GGUFReader(files / "q4_0.gguf").tensors
    assert [t.name for t in ours] == [t.name for t in theirs]
    off_steps = steps_seen = 0
    for found, made in zip(ours, theirs, strict=True):
        if found.tensor_type != gguf.GGMLQuantizationType.Q4_0:
            np.testing.assert_array_equal(found.data, made.data)
            continue
        levels, steps = unpack(found.data.reshape(-1, 18))
        made_levels, made_steps = unpack(made.data.reshape(-1, 18))
        np.testing.assert_array_equal(levels, made_levels)
        ulps = np.abs(steps.view(np.int16).astype(int) - made_steps.view(np.int16).astype(int))
        assert ulps.max() <= 5  # bf16's own rounding, 1 part in 512, in ulps of fp16
        off_steps += int((ulps > 0).sum())
        steps_seen += len(steps)
    # Weights were rounded to bf16 in between: most steps, not all, survive to the last bit.
    assert 0 < off_steps < 0.9 * steps_seen


def test_repack_to_bf16_is_the_bf16_file(files: Path, tmp_path: Path) -> None:
    base = open_gguf(files / "q8_0.gguf")
    moves = plan(open_checkpoint(files / "snapshot"), base, bf16=True)
    repack(base, moves, tmp_path / "bf16.gguf", 2)
    assert (tmp_path / "bf16.gguf").read_bytes() == (files / "bf16.gguf").read_bytes()


def test_same_bytes_whatever_the_threads(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = "target" if "target" in files.name else "drafter"
    write_gguf(tmp_path / "one.gguf", SMALL, role, "q4_0", 1, quiet)
    assert (tmp_path / "one.gguf").read_bytes() == (files / "q4_0.gguf").read_bytes()
    write_gguf(tmp_path / "other.gguf", SMALL, role, "q4_0", 1, quiet, seed=5)
    assert (tmp_path / "other.gguf").read_bytes() != (files / "q4_0.gguf").read_bytes()
    # In smaller slices every format still holds one and the same model.
    monkeypatch.setattr(random_pair, "SLICE", 1024)
    (tmp_path / "s").mkdir()
    write_safetensors(tmp_path / "s" / "model.safetensors", SMALL, role, 2, quiet)
    write_gguf(tmp_path / "bf16.gguf", SMALL, role, "bf16", 2, quiet)
    _, totals = check(open_checkpoint(tmp_path / "s"), open_gguf(tmp_path / "bf16.gguf"))
    assert [row.identical for row in totals] == [1, 1]


def test_q8_0_is_the_converters_rounding(files: Path) -> None:
    wide = {t.name: t for t in gguf.GGUFReader(files / "bf16.gguf").tensors}
    for tensor in gguf.GGUFReader(files / "q8_0.gguf").tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0:
            values = gguf.quants.dequantize(wide[tensor.name].data, gguf.GGMLQuantizationType.BF16)
            np.testing.assert_array_equal(
                tensor.data, gguf.quants.quantize(values, tensor.tensor_type)
            )


def test_never_replaces_a_file(files: Path) -> None:
    with pytest.raises(RigError, match="exists"):
        write_gguf(files / "q4_0.gguf", SMALL, "target", "q4_0", 1, quiet)
