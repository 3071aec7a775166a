"""One measurement at a time: between processes, users' folders, jobs and containers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.errors import RigError
from common.host import alone
from common.mcp import jobs
from common.rig import ROOT, Rig
from tests.helpers.run_script import measure

HOLDER = """import sys
from common.host import alone
with alone.measuring("speed of another-rig"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(alone.VARIABLE, str(tmp_path / "lock"))
    return tmp_path / "lock"


@contextmanager
def another() -> Iterator["subprocess.Popen[str]"]:
    """Another process that measures."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GEMMA_RIGS_CACHE": "/elsewhere"}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_measurement_is_refused_and_names_the_first(tiny: Rig) -> None:
    with another() as process:
        done = measure("speed", tiny, QUICK="1")
        assert done.code == 1
        assert done.err.startswith("error: speed of another-rig is being measured since ")
        assert f"(process {process.pid}) on this host; wait for it, or end it" in done.err
        assert done.err.count("\n") == 1
        assert not tiny.runs_folder.exists()


def test_neither_a_job_nor_a_server_is_started_beside_it(tiny: Rig) -> None:
    with another():
        for start in (
            lambda: jobs.measure(tiny, "speed", True, False),
            lambda: jobs.serve(tiny),
        ):
            with pytest.raises(RigError, match="another-rig is being measured"):
                start()


def test_the_kernel_lets_go_when_the_holder_is_killed() -> None:
    with another() as process:
        process.kill()
        process.wait()
        with alone.measuring("speed of mine"):
            pass
    alone.check()


@pytest.mark.parametrize("text", ["", "null", "[]", "\udcff", '{"what": 5}', "[" * 5000])
def test_a_holder_that_does_not_say_who_it_is_is_refused_too(lock: Path, text: str) -> None:
    with another():
        lock.write_text(text, errors="surrogateescape")
        with pytest.raises(RigError, match=f"something is being measured .it holds {lock}"):
            alone.check()


def test_what_a_holder_says_cannot_drive_a_terminal(lock: Path) -> None:
    with another():
        lock.write_text(json.dumps({"what": "\x1b[2Jx\ny", "pid": 1, "started": "now"}))
        with pytest.raises(RigError) as caught:
            alone.check()
    assert str(caught.value).startswith("[2Jxy is being measured since now")


def odd_link(lock: Path) -> None:
    lock.with_name("other").write_text("precious")
    lock.symlink_to(lock.with_name("other"))


@pytest.mark.parametrize("odd", [odd_link, os.mkfifo, Path.mkdir])
def test_a_lock_that_is_no_file_is_one_line(lock: Path, odd: object) -> None:
    assert callable(odd)
    odd(lock)
    with pytest.raises(RigError, match=f"{lock}, cannot be used.*delete it, or name another"):
        alone.check()


def test_the_file_is_for_every_user(lock: Path) -> None:
    old = os.umask(0o077)
    try:
        alone.check()
    finally:
        os.umask(old)
    assert lock.stat().st_mode & 0o777 == 0o666


DOCKER = """#!/bin/sh
[ "$1 $2" = "--context default" ] || exit 1
case $3 in
ps) printf 'abc gemma-rigs-mcp\\n' ;;
top) echo ARGS; echo "python /opt/gemma-rigs/scripts/$TOP x" ;;
esac
"""


@pytest.mark.parametrize(
    ("process", "counts"), [("measure.py", True), ("tune.py", True), ("serve.py", False)]
)
def test_a_container_that_measures_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: str, counts: bool
) -> None:
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TOP", process)
    if not counts:
        return alone.check()
    for call in (alone.check, lambda: alone.measuring("mine").__enter__()):
        with pytest.raises(RigError, match="the container gemma-rigs-mcp is measuring"):
            call()
    return None
