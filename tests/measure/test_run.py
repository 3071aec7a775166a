"""The run directory: names, journal, torn lines, a full disk, lock, resume."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from common.errors import RigError
from common.host import facts
from common.measure import resume, run
from common.rig import ROOT, Rig
from tests.helpers.runs import MADE

SETTINGS = {**MADE, "settings": {"PORT": "1", "CTX_SIZE": "8"}}


def line(a: int) -> dict[str, object]:
    return {"command": "a", "failed": None, "seconds": a, "source_bytes": 1, "threads": 1}


def resumed(rig: Rig, what: str, manifest: dict[str, Any], out: Path | None = None) -> run.Run:
    return resume.resume(rig, what, manifest, out, print)


def read(folder: Path) -> list[float]:
    return [found["seconds"] for found in run.read_lines(folder, run.JOURNAL)]


def test_the_folder_one_is_in_can_be_named(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run.create(tiny, "speed", {}, Path())
    assert [path.name for path in Path().iterdir()] == [run.MANIFEST]


def test_a_second_run_on_one_day_gets_a_number(tiny: Rig) -> None:
    names = [run.create(tiny, "speed", {}).folder.name for _ in range(3)]
    assert names[0].endswith("-speed-cpu")
    assert names[1:] == [f"{names[0]}-2", f"{names[0]}-3"]


def test_a_folder_with_something_in_it_is_not_used(tiny: Rig, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep")
    with pytest.raises(RigError, match="not empty"):
        run.create(tiny, "speed", {}, tmp_path / "mine")


def test_a_torn_last_line_is_left_out_and_dropped(tiny: Rig) -> None:
    current = run.create(tiny, "speed", SETTINGS)
    current.append(run.JOURNAL, line(1))
    path = current.folder / run.JOURNAL
    path.write_bytes(path.read_bytes() + b'{"a": 2, "b')
    assert read(current.folder) == [1]
    resumed(tiny, "speed", SETTINGS).append(run.JOURNAL, line(3))
    assert read(current.folder) == [1, 3]


def test_a_full_disk_keeps_what_is_there(tiny: Rig) -> None:
    current = run.create(tiny, "speed", SETTINGS)
    current.append(run.JOURNAL, line(1))
    size = (current.folder / run.JOURNAL).stat().st_size
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        # The kernel takes a few bytes of the line and then no more, as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, old[1]))
        with pytest.raises(RigError, match=r"cannot be written.*RESUME=1"):
            current.append(run.JOURNAL, line(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, before)
    assert read(current.folder) == [1]
    assert (current.folder / run.JOURNAL).stat().st_size == size


def test_two_writers_are_refused(tiny: Rig) -> None:
    current = run.create(tiny, "speed", SETTINGS)
    with current, pytest.raises(RigError, match="written by another run"):
        run.Run(current.folder, current.manifest).__enter__()


def test_resume_takes_the_last_unfinished_run(tiny: Rig) -> None:
    first = run.create(tiny, "speed", SETTINGS)
    second = run.create(tiny, "speed", SETTINGS)
    second.finish()
    assert resumed(tiny, "speed", SETTINGS).folder == first.folder
    first.finish()
    with pytest.raises(RigError, match="no unfinished speed run"):
        resumed(tiny, "speed", SETTINGS)
    with pytest.raises(RigError, match="is finished"):
        resumed(tiny, "speed", SETTINGS, first.folder)


def test_resume_under_other_settings_is_refused_by_name(tiny: Rig) -> None:
    run.create(tiny, "speed", SETTINGS)
    other = {**MADE, "settings": {"PORT": "1", "CTX_SIZE": "16"}}
    with pytest.raises(RigError, match="CTX_SIZE was '8', is now '16'"):
        resumed(tiny, "speed", other)


def test_a_run_of_before_versions_can_be_continued(tiny: Rig) -> None:
    current = run.create(tiny, "speed", SETTINGS)
    del current.manifest["version"]
    current.write_manifest()
    assert resumed(tiny, "speed", SETTINGS).folder == current.folder


def test_reading_something_else_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="not a run directory"):
        run.read_manifest(tmp_path)


def test_a_killed_writer_leaves_every_line_whole(tmp_path: Path) -> None:
    """kill -9 while another process appends as fast as it can."""
    code = (
        "import sys; from pathlib import Path; from common.measure.run import Run\n"
        "run = Run(Path(sys.argv[1]), {}); n = 0\n"
        "while True:\n"
        "    run.append('telemetry.jsonl', {'n': n, 'text': 'x' * 5000}); n += 1\n"
        "    print(n, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, env=environment
    )
    assert writer.stdout is not None
    for _ in range(20):
        written = int(writer.stdout.readline())
    writer.kill()
    writer.wait()
    lines = run.read_lines(tmp_path, run.TELEMETRY)
    assert [found["n"] for found in lines] == list(range(len(lines)))
    assert len(lines) >= written


def test_a_run_directory_does_not_make_the_harness_dirty(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)

    git("init", "--quiet")
    (tmp_path / "rig").mkdir()
    (tmp_path / "rig" / "tpu.env").write_text("PORT=1\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    for place in ("rig/benchmarks/runs/today/REPORT.md", "benchmarks/compare/COMPARE.md"):
        result = tmp_path / place
        result.parent.mkdir(parents=True)
        result.write_text("new")
    assert facts.harness(tmp_path)["dirty"] is False
    (tmp_path / "rig" / "new.env").write_text("PORT=2\n")
    assert facts.harness(tmp_path)["dirty"] is True


def test_the_manifest_names_the_harness() -> None:
    assert set(facts.harness()) == {"commit", "dirty"}
    assert json.dumps(facts.host())
