"""Who serves a rig: found from the first moment, and nobody else is taken for it."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.rig import Rig
from common.serving import identity, record
from common.serving.process import Server
from common.serving.record import Serving


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has nothing to do with us, and leads a group."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


def told(rig: Rig, process: "subprocess.Popen[bytes]", **changes: Any) -> Serving:
    """A record that names this process as its llama-server, ready."""
    place, found = identity.here(), identity.stat(process.pid)
    assert found is not None
    whole = {**dataclasses.asdict(place), "script": 1, "script_ticks": 1, "pid": process.pid}
    whole |= {"ticks": found.ticks, "ready": True, "url": rig.url, "log": "x", **changes}
    record.folder().mkdir(parents=True, exist_ok=True)
    record.record_file(rig).write_text(json.dumps(whole))
    return Serving(**whole)


@pytest.fixture
def server(tiny: Rig, fake: Callable[..., Engine], tmp_path: Path) -> Iterator[Server]:
    with Server(tiny, fake(), tmp_path / "log") as running:
        yield running


def test_it_is_found_from_the_first_moment(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path
) -> None:
    seen = []
    with record.serving(tiny) as note:

        def started(pid: int) -> None:
            note.started(pid)
            seen.append(record.find(tiny))

        with Server(tiny, fake(), tmp_path / "log", started=started) as running:
            note.ready()
            assert running.process is not None
            (loading,), ready = seen, record.find(tiny)
            assert loading is not None
            assert ready is not None
            assert (loading.pid, loading.ready) == (running.process.pid, False)
            assert (ready.pid, ready.ready) == (running.process.pid, True)
            assert ready.server() == [running.process.pid]
        assert record.find(tiny) is None
    assert not record.record_file(tiny).exists()


def test_stop_ends_the_whole_group(tiny: Rig, fake: Callable[..., Engine], tmp_path: Path) -> None:
    """A wrapper, and one that has died and left its child."""
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\n"{fake().server}" "$@"\nexit $?\n')
    wrapper.chmod(0o755)
    for died in (False, True):
        with Server(tiny, Engine(wrapper, {}), tmp_path / "log") as running:
            assert running.process is not None
            found = told(tiny, running.process)
            if died:
                running.process.kill()
                running.process.wait()
            assert len(found.server()) == 2 - died
            record.stop(found)
            assert identity.group(running.process.pid) == []


def test_a_forged_record_ends_nobody(tiny: Rig, sleeper: "subprocess.Popen[bytes]") -> None:
    forged = told(tiny, sleeper)
    assert record.find(tiny) is None
    record.stop(forged)
    record.stop(told(tiny, sleeper, ready=False, script=sleeper.pid, script_ticks=forged.ticks))
    record.stop(told(tiny, sleeper, pid=0, ready=False, script=1))
    assert sleeper.poll() is None


@pytest.mark.parametrize("key", ["host", "boot", "namespace", "ticks", "url"])
def test_another_place_or_process_is_not_ours(tiny: Rig, server: Server, key: str) -> None:
    """And its record stays: it may be right where it was written."""
    assert server.process is not None
    found = told(tiny, server.process)
    assert found.server() == [server.process.pid]
    odd = {"ticks": found.ticks + 1, "url": "http://127.0.0.1:1"}.get(key, "another")
    other = told(tiny, server.process, **{key: odd})
    assert other.alive() == []
    assert record.find(tiny) is None
    record.stop(other)
    assert server.process.poll() is None
    assert record.record_file(tiny).is_file()


def test_a_step_of_the_clock_changes_nothing(
    tiny: Rig, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.process is not None
    told(tiny, server.process)
    for seconds in (0.0, 1e10):
        monkeypatch.setattr("time.time", lambda seconds=seconds: seconds)
        found = record.find(tiny)
        assert found is not None
        assert 0 <= found.served_s < 3600


def test_hosts_with_one_home_do_not_meet(tiny: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    place = identity.here()
    with record.serving(tiny):
        mine = record.record_file(tiny)
        there = dataclasses.replace(place, host="../other host")
        monkeypatch.setattr(identity, "here", lambda: there)
        with record.serving(tiny):
            assert record.record_file(tiny) != mine
            assert record.record_file(tiny).parent.parent == mine.parent.parent
        assert mine.is_file()


CONTENDER = """
import sys, time
from pathlib import Path
from common import rig
from common.errors import RigError
from common.serving import record
try:
    with record.serving(rig.load(Path(sys.argv[1]))):
        print("serves", flush=True)
        sys.stdin.read()
except RigError as error:
    print(error, flush=True)
"""


def test_of_many_at_once_one_serves(tiny: Rig) -> None:
    many = [
        subprocess.Popen(
            [sys.executable, "-c", CONTENDER, str(tiny.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for _ in range(4)
    ]
    said = sorted(process.stdout.readline() for process in many if process.stdout)
    assert record.record_file(tiny).is_file()
    for process in many:
        process.communicate()
    refused = f"{tiny.name} is being started; stop it with make stop\n"
    assert said == sorted(["serves\n", *[refused] * 3])
    assert not record.record_file(tiny).exists()


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{", b"\xff", b'{"pid": 1}', b"[" * 100_000]
)
def test_a_damaged_record_is_none(tiny: Rig, content: bytes) -> None:
    record.folder().mkdir(parents=True)
    record.record_file(tiny).write_bytes(content)
    assert record.find(tiny) is None


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(Serving)])
def test_a_record_of_odd_values_is_none(tiny: Rig, server: Server, key: str) -> None:
    assert server.process is not None
    told(tiny, server.process, **{key: ["odd"]})
    assert record.find(tiny) is None


def test_a_record_that_never_ends_is_none(tiny: Rig) -> None:
    file = record.record_file(tiny)
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    assert record.find(tiny) is None
    file.unlink()
    file.symlink_to("/dev/zero")
    assert record.find(tiny) is None


def test_nobody_else_may_look(tiny: Rig) -> None:
    before = os.umask(0)
    try:
        record.folder().mkdir(parents=True)  # as an earlier version left it
        with record.serving(tiny):
            modes = {path.stat().st_mode & 0o777 for path in record.folder().iterdir()}
            assert modes == {0o600}
            assert record.folder().stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize("what", ["file", "missing"])
def test_a_cache_that_cannot_be_written_is_one_line(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    cache = tmp_path / "cache"
    if what == "file":
        cache.touch()
    else:
        cache.symlink_to("/proc/none/here")
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(cache))
    with (
        pytest.raises(RigError, match=r"cannot be written \(.*GEMMA_RIGS_CACHE") as said,
        record.serving(tiny),
    ):
        pass
    assert "\n" not in str(said.value)
    assert record.find(tiny) is None
