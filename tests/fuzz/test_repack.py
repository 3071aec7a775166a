"""Repacking and checking damaged files: done or refused in one line, and nothing left half."""

import time
from pathlib import Path

import pytest

from common.errors import RigError
from common.weights.checkpoint import open_checkpoint
from common.weights.exact import plan, repack
from common.weights.gguf_file import open_gguf
from common.weights.verify import check
from tests.fuzz.mutate import CHUNKS, mutated, randoms
from tests.helpers.small_model import weights, write_q8_0, write_snapshot

LIMIT_S = 5.0  # of this process's own time
HEADERS = (1500, 600)
"""bytes of the model's header, and of the checkpoint's"""


def is_repacked(base: Path, snapshot: Path, out: Path, number: int) -> bool:
    started, said = time.process_time(), ""
    try:
        checkpoint, file = open_checkpoint(snapshot), open_gguf(base)
        check(checkpoint, file)
        repack(file, plan(checkpoint, file), out, 1)
        check(checkpoint, open_gguf(out))
    except RigError as error:
        said = str(error)
    assert "\n" not in said, number
    assert out.exists() == (not said), number
    assert not out.with_name(f"{out.name}.part").exists(), number
    assert time.process_time() - started < LIMIT_S, number
    return not said


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers that are none, compared
@pytest.mark.parametrize("chunk", CHUNKS)
def test_damaged_files_are_repacked_or_refused(tmp_path: Path, chunk: int) -> None:
    snapshot = write_snapshot(tmp_path / "snapshot", weights())
    base, shard, out = tmp_path / "q8.gguf", snapshot / "model.safetensors", tmp_path / "out.gguf"
    right, source = write_q8_0(base, weights()).read_bytes(), shard.read_bytes()
    found = []
    for number, chance in enumerate(randoms(chunk), chunk):
        out.unlink(missing_ok=True)
        base.write_bytes(mutated(chance, right, HEADERS[0]) if chance.random() < 0.7 else right)
        shard.write_bytes(mutated(chance, source, HEADERS[1]) if chance.random() < 0.4 else source)
        found.append(is_repacked(base, snapshot, out, number))
    assert found.count(False) > found.count(True) > 0
