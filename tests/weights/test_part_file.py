from pathlib import Path

import numpy as np
import pytest

from common.errors import RigError
from common.weights.part_file import PartFile


def test_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    with PartFile(path, 8) as file:
        file.write(4, np.array([1.0], np.float32))
        file.write(0, b"head")
        assert not path.exists()
        assert (tmp_path / "out.bin.part").stat().st_size == 8
    assert path.read_bytes() == b"head" + np.float32(1).tobytes()
    assert list(tmp_path.iterdir()) == [path]


def test_starts_over_what_an_earlier_run_left(tmp_path: Path) -> None:
    (tmp_path / "out.bin.part").write_text("much longer than before, left by kill -9")
    with PartFile(tmp_path / "out.bin", 2) as file:
        file.write(0, b"ok")
    assert (tmp_path / "out.bin").read_bytes() == b"ok"


def test_failing_to_write_keeps_the_name_free(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="first"), PartFile(tmp_path / "out.bin", 2):
        raise RigError("first")
    assert list(tmp_path.iterdir()) == []


def test_refuses_a_name_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out.bin").write_text("mine")
    with pytest.raises(RigError, match=r"out\.bin exists"):
        PartFile(tmp_path / "out.bin", 2)


def test_a_part_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    other = tmp_path / "precious"
    other.write_bytes(b"precious")
    (tmp_path / "out.bin.part").symlink_to(other)
    with pytest.raises(RigError, match="cannot write"), PartFile(tmp_path / "out.bin", 2):
        pytest.fail("entered")
    assert other.read_bytes() == b"precious"
