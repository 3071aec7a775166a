"""GGUF files with a damaged header are read, or refused in one line; soon, either way."""

import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from common.engines.llamacpp import memory
from common.errors import RigError
from common.weights.gguf_file import open_gguf, parts_of
from tests.fuzz.mutate import CHUNKS, mutated, randoms

LIMIT_S = 5.0  # of this process's own time


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small model with every kind of setting that is looked at."""
    path = tmp_path_factory.mktemp("right") / "right.gguf"
    writer = gguf.GGUFWriter(path, "gemma4")
    writer.add_custom_alignment(64)
    writer.add_block_count(4)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length([64, 64, 128, 128])
    writer.add_head_count(2)
    writer.add_head_count_kv([1, 1, 2, 2])
    writer.add_sliding_window(512)
    writer.add_array("gemma4.attention.sliding_window_pattern", [True, True, False, True])
    writer.add_float64("gemma4.attention.key_length", 16.0)
    writer.add_token_list(["a", "b", "some", "words"])
    writer.add_int32("split.count", 1)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    blocks, q8_0 = np.zeros((8, 34), np.uint8), gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("blk.0.ffn_up.weight", blocks, raw_dtype=q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def read_all(path: Path) -> None:
    file = open_gguf(path)
    memory.model_of_file(file)
    memory.weights_mib(file, on_card=True)
    for tensor in file.tensors:
        file.read(tensor, 0, tensor.size)


def test_the_right_one_is_read(right: bytes, tmp_path: Path) -> None:
    path = tmp_path / "right.gguf"
    path.write_bytes(right)
    read_all(path)
    assert len(memory.model_of_file(open_gguf(path)).layers) == 4


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_damaged_header_is_one_line(right: bytes, tmp_path: Path, chunk: int) -> None:
    path, refused, read = tmp_path / "x.gguf", 0, 0
    header = len(right) - 4 * 32 * 4
    for number, chance in enumerate(randoms(chunk), chunk):
        path.write_bytes(mutated(chance, right, header))
        started, said = time.process_time(), ""
        try:
            read_all(path)
            read += 1
        except RigError as error:
            refused, said = refused + 1, str(error)
        assert "\n" not in said, number
        assert parts_of(path) >= 1
        assert time.process_time() - started < LIMIT_S, number
    assert refused > read > 0
