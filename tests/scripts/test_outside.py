"""What lies outside a rig: the environment, the working directory, folders that cannot be used."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from common.engines import Engine
from common.host import container
from common.rig import ROOT, Rig
from scripts import _cli, _preparing, serve
from tests.conftest import Run

TINY = "local-llamacpp-cpu-tiny-q4_0"


def ended(folder: Path, script: str, *words: str) -> tuple[int, str, str]:
    """A script called in a folder that has been deleted."""
    folder.mkdir()
    line = f'rmdir "{folder}"; exec "{sys.executable}" "{ROOT}/scripts/{script}.py" "$@"'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *words], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("script", ["show", "doctor", "files", "serve"])
def test_a_deleted_folder_is_said_in_one_line(tmp_path: Path, script: str) -> None:
    code, _out, err = ended(tmp_path / "gone", script, ".")
    assert (code, err) == (1, "error: the folder you are in has been deleted; cd to another\n")


def test_a_rig_by_its_name_is_found_from_a_deleted_folder(tmp_path: Path) -> None:
    code, out, err = ended(tmp_path / "gone", "show", TINY)
    assert (code, err) == (0, "")
    assert "llama-server -m " in out


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nothing", "x" * 300])
def test_a_cache_that_cannot_be_written_is_one_line(
    tiny: Rig,
    fake: Callable[..., Engine],
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    fake()
    (tmp_path / "file").touch()
    cache = tmp_path / place
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(cache))
    code, _out, err = run(serve.body, tiny)
    assert code == 1
    assert err.startswith("error: ")
    assert str(cache) in err
    assert len(err.splitlines()) == 1


def test_what_the_environment_changed_is_said_at_the_start(
    tiny: Rig,
    fake: Callable[..., Engine],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake()
    monkeypatch.setenv("HOST", "0.0.0.0")
    monkeypatch.setenv("CTX_SIZE", "4096")
    _preparing.prepare(_cli.load_rig(str(tiny.folder)))
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("from the environment, not from tpu.env: HOST=0.0.0.0, PORT=")
    assert line.endswith(", CTX_SIZE=4096")


def test_a_token_comes_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "SECRETS", tmp_path)
    monkeypatch.setenv("HF_TOKEN", "")
    container.read_secrets()
    assert os.environ["HF_TOKEN"] == ""
    (tmp_path / "hf_token").write_text("hf_Q7zx\n")
    container.read_secrets()
    assert os.environ["HF_TOKEN"] == "hf_Q7zx"
