import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from common.errors import RigError
from common.weights import exact
from common.weights import verify as check_module
from common.weights.checkpoint import open_checkpoint
from common.weights.exact import plan, repack
from common.weights.gguf_file import GgufWriter, Tensor, open_gguf
from common.weights.verify import check
from tests.helpers.small_model import weights, write_q8_0, write_snapshot

NAME = "model.embed_tokens.weight"


def test_figures_by_hand(tmp_path: Path) -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, :4] = [4, 3, -2, 1]
    snapshot = open_checkpoint(write_snapshot(tmp_path / "s", {NAME: values}))
    stored = values.copy()
    stored[0, 1] += 0.5  # one of 32 differs, by 0.5
    stored[0, 0] += 0.001  # gone in bf16, whose step is 1/32 here
    stored[0, 31] = -0.0
    writer = gguf.GGUFWriter(tmp_path / "f32.gguf", "gemma4")
    writer.add_tensor("token_embd.weight", stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    rows, totals = check(snapshot, open_gguf(tmp_path / "f32.gguf"))
    assert [row.name for row in rows + totals] == ["token_embd.weight", "all F32"]
    for row in rows + totals:
        assert (row.type, row.values, row.bytes) == ("F32", 32, 128)
        assert row.identical == 31 / 32
        expected = np.sqrt((0.5**2 + 0.001**2) / (16 + 9 + 4 + 1))
        assert row.relative_error == pytest.approx(expected, rel=1e-3)


def test_formats_rank_as_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "SLICE", 512)
    monkeypatch.setattr(exact, "SLICE", 512)
    snapshot = open_checkpoint(write_snapshot(tmp_path / "s", weights()))
    base = open_gguf(write_q8_0(tmp_path / "q8.gguf", weights()))
    repack(base, plan(snapshot, base), tmp_path / "q4.gguf", 1)
    repack(base, plan(snapshot, base, bf16=True), tmp_path / "bf16.gguf", 1)
    found = {}
    for name in ("q4", "q8", "bf16"):
        rows, totals = check(snapshot, open_gguf(tmp_path / f"{name}.gguf"))
        found[name] = {row.type: row for row in totals}
        computed = next(row for row in rows if row.name == "rope_freqs.weight")
        assert computed.identical is None
        assert computed.relative_error is None
        assert found[name]["F32"].identical == 1
    q4, q8, bf16 = found["q4"]["Q4_0"], found["q8"]["Q8_0"], found["bf16"]["BF16"]
    assert (bf16.identical, bf16.relative_error) == (1, 0)
    assert q4.identical is not None
    assert q8.identical is not None
    assert q4.identical > 0.9 > 0.5 > q8.identical
    assert q4.relative_error is not None
    assert q8.relative_error is not None
    assert q4.relative_error < 0.002 < q8.relative_error
    assert q4.bytes * 34 == q8.bytes * 18
    json.dumps([q4.__dict__])


def test_a_type_that_the_package_does_not_decode_is_one_line(tmp_path: Path) -> None:
    values = np.zeros((2, 32), np.float32)
    snapshot = open_checkpoint(write_snapshot(tmp_path / "s", {NAME: values}))
    kind = gguf.GGMLQuantizationType.F64
    writer = GgufWriter(tmp_path / "x.gguf", [], [Tensor("token_embd.weight", (2, 32), kind)], 32)
    with writer:
        writer.write(writer.tensors[0], 0, values.astype(np.float64))
    with pytest.raises(RigError, match="is F64, which the gguf package does not decode"):
        check(snapshot, open_gguf(tmp_path / "x.gguf"))
