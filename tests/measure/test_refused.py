"""What the system refuses while something is measured: one line, and nothing measured is lost."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from common import atomic, report
from common.engines.llamacpp.build import Engine
from common.measure import loop, progress, run
from common.rig import ROOT, Rig
from scripts import map as map_script
from tests.conftest import Run
from tests.helpers.run_script import measure
from tests.helpers.runs import SWEEP, copied

Fake = Callable[..., Engine]
ARMS = {"QUICK": "1", "SPEED_N_MAX": "2"}
TRIALS = 9


def refused(rig: Rig, **environment: str) -> str:
    """What a measurement says that ends with an error: one line."""
    done = measure("speed", rig, **{**ARMS, **environment})
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1, done.err
    return done.err


def folder(rig: Rig) -> Path:
    (found,) = rig.runs_folder.iterdir()
    return found


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_runs_that_is_a_file(tiny: Rig, fake: Fake) -> None:
    fake()
    tiny.runs_folder.parent.mkdir()
    tiny.runs_folder.write_text("")
    assert "cannot be written: Not a directory; make room or give permission" in refused(tiny)


@pytest.mark.parametrize(("number", "said"), [(28, "No space left"), (30, "Read-only file system")])
def test_a_folder_that_cannot_be_made(
    tiny: Rig, fake: Fake, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    fake()
    make = Path.mkdir

    def mkdir(self: Path, *given: object, **more: object) -> None:
        if self.parent == tiny.runs_folder:
            raise OSError(number, os.strerror(number), str(self))
        make(self, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert f"-speed-cpu cannot be written: {said}" in refused(tiny)


def test_a_folder_that_is_deleted_meanwhile(
    tiny: Rig, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake()
    start = loop._start

    def started(*given: object) -> object:
        shutil.rmtree(folder(tiny))
        return start(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "_start", started)
    assert "starts.jsonl cannot be written: No such file or directory" in refused(tiny)


@pytest.mark.parametrize(
    ("name", "resumed"), [(run.MANIFEST, True), (report.SUMMARY, False), (report.REPORT, False)]
)
def test_a_disk_that_is_full_at_the_end_loses_no_trial(
    tiny: Rig, fake: Fake, monkeypatch: pytest.MonkeyPatch, name: str, resumed: bool
) -> None:
    fake()
    write = atomic.write

    def written(path: Path, *given: object, **more: object) -> None:
        if path.name == name and ".new-" not in str(path):
            full()
        write(path, *given, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "write", written)
        said = refused(tiny)
    assert "cannot be written: No space left on device" in said
    kept = (folder(tiny) / run.JOURNAL).read_bytes()
    assert kept.count(b"\n") == TRIALS
    if resumed:
        assert "RESUME=1" in said
        assert measure("speed", tiny, RESUME="1", **ARMS).code == 0
    else:
        assert f"make report RUN={folder(tiny)}" in said
        report.write(folder(tiny))
    assert (folder(tiny) / run.JOURNAL).read_bytes() == kept
    assert (folder(tiny) / report.REPORT).is_file()


def test_progress_that_cannot_be_told_ends_nothing(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    fake()
    done = measure("speed", tiny, **{**ARMS, progress.VARIABLE: str(tmp_path / "gone" / "file")})
    assert done.code == 0, done.err


def test_a_full_standard_output_ends_nothing() -> None:
    code = "from scripts import _cli; _cli.main(lambda: [_cli.say(word) for word in 'ab'] and 0)"
    with Path("/dev/full").open("wb", buffering=0) as out:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 0
    assert done.stderr == (
        "standard output cannot be written (No space left on device); going on\n"
    )


def test_a_map_that_cannot_be_written_and_a_run_that_cannot_be_read(
    tiny: Rig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(SWEEP, tiny.runs_folder / "2026-11-29-sweep-cpu")
    broken = tiny.runs_folder / "2026-11-30-sweep-cpu"
    broken.mkdir()
    code, out, err = run(map_script.body, tiny)
    assert (code, err) == (0, "")
    assert f"left out: {broken} is not a run directory" in out
    monkeypatch.setattr(atomic, "write", full)
    code, _out, err = run(map_script.body, tiny)
    assert code == 1
    assert err.endswith(
        "MAP.md cannot be written: No space left on device; make room or give permission there\n"
    )
