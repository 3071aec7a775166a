"""The record of digests saves work and is never trusted for a file that has changed."""

import json
import os
from pathlib import Path

import pytest

from common import digest, places

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("MODELS_DIR", str(folder))
    return folder


def test_a_digest_is_worked_out_once(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = models / "a.gguf"
    path.write_bytes(b"")
    assert digest.recorded(path) is None
    assert digest.known(path) == EMPTY
    with monkeypatch.context() as broken:
        broken.setattr(digest, "sha256", lambda _path: pytest.fail("read again"))
        assert digest.known(path) == EMPTY
    path.write_bytes(b"more")
    assert digest.recorded(path) is None
    assert digest.known(path) == digest.sha256(path) != EMPTY


def test_the_record_moves_with_the_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = models / "sub" / "a.gguf"
    path.parent.mkdir()
    path.write_bytes(b"")
    digest.record(path, EMPTY, "someone/a", "c0ffee")
    other = models.parent / "mounted"
    other.symlink_to(models)
    monkeypatch.setenv("MODELS_DIR", str(other))
    entry = digest.recorded(places.model_file("sub/a.gguf"))
    assert entry
    assert (entry["sha256"], entry["from"], entry["revision"]) == (EMPTY, "someone/a", "c0ffee")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a.gguf": 3}', '{"a.gguf": {}}'])
def test_a_spoilt_record_is_no_record(models: Path, text: str) -> None:
    (models / digest.RECORD).write_text(text)
    path = models / "a.gguf"
    path.write_bytes(b"")
    assert digest.recorded(path) is None
    assert digest.known(path) == EMPTY
    assert digest.recorded(path)


@pytest.mark.parametrize(
    "change",
    [{"sha256": None}, {"sha256": 7}, {"sha256": "abc"}, {"from": []}, {"revision": 1}],
    ids=str,
)
def test_an_odd_entry_is_made_anew(models: Path, change: dict[str, object]) -> None:
    """Its stamp is right, so that only what else it says is odd."""
    path = models / "a.gguf"
    path.write_bytes(b"")
    digest.record(path, EMPTY)
    record = models / digest.RECORD
    entries = json.loads(record.read_text())
    entries["a.gguf"] |= change
    record.write_text(json.dumps(entries))
    assert digest.recorded(path) is None
    assert digest.known(path) == EMPTY
    assert digest.recorded(path)
    del entries["a.gguf"]["sha256"]
    record.write_text(json.dumps(entries))
    assert digest.recorded(path) is None
    record.write_text("[" * 100_000)
    assert digest.recorded(path) is None


def test_a_record_that_is_a_pipe_is_not_waited_for(models: Path) -> None:
    os.mkfifo(models / digest.RECORD)
    path = models / "a.gguf"
    path.write_bytes(b"")
    assert digest.known(path) == EMPTY
    assert digest.recorded(path)


def test_a_record_that_cannot_be_written_is_done_without(models: Path) -> None:
    path = models / "a.gguf"
    path.write_bytes(b"")
    (models / digest.RECORD).mkdir()
    assert digest.known(path) == EMPTY
    assert digest.recorded(path) is None
