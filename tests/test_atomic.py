"""Writing whole files: the old one or the new one, and nothing left over."""

import os
from pathlib import Path

import pytest

from common import atomic
from common.lock import only_one


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_and_a_second_writing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    atomic.write(path, "w\u00f6rd\r\n")
    assert path.read_bytes() == b"w\xc3\xb6rd\r\n"
    atomic.write(path, b"\0", sync=True)
    assert path.read_bytes() == b"\0"
    assert names(tmp_path) == ["a.json"]


def test_mode_and_link_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    atomic.write(link, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert link.is_symlink()


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt])
def test_an_error_leaves_the_file_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(error), atomic.part_of(path) as part:  # noqa: PT012 (an error midway)
        part.write_text("ne")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_nothing_written_is_nothing_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic.part_of(tmp_path / "a"):
        pass
    assert names(tmp_path) == []


def test_a_part_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    other, path = tmp_path / "precious", tmp_path / "out"
    other.write_text("precious")
    (tmp_path / f"out.{os.getpid()}.part").symlink_to(other)
    atomic.write(path, "new")
    assert (path.read_text(), path.is_symlink()) == ("new", False)
    assert other.read_text() == "precious"


def test_a_lock_that_is_a_link_empties_nothing(tmp_path: Path) -> None:
    other = tmp_path / "precious"
    other.write_text("precious")
    (tmp_path / ".lock").symlink_to(other)
    with only_one(tmp_path / ".lock", lambda: pytest.fail("waited")):
        assert other.read_text() == "precious"


def test_a_lock_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with only_one(tmp_path / ".lock", lambda: pytest.fail("waited")):
        assert names(tmp_path) == [".lock"]
