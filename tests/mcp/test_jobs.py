"""Jobs as their folders tell them; real ones are in test_server.py."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.mcp import jobs
from common.mcp.jobs import Job
from common.mcp.run_tools import RunTools
from common.measure import progress
from common.rig import Rig
from common.serving import identity, record
from common.serving.process import Server
from scripts import _cli


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))


PYTHON = "import signal, time\n"
STUBBORN = PYTHON + "for n in (2, 15): signal.signal(n, lambda *_: None)\n"
SLEEPS = "print(flush=True)\nwhile True: time.sleep(60)"  # the line says it is ready


@contextlib.contextmanager
def asleep(rig: str, name: str, code: str = PYTHON) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that leads a group, as scripts/job.py does, in the environment of this job."""
    with subprocess.Popen(
        [sys.executable, "-c", code + SLEEPS],
        start_new_session=True,
        stdout=subprocess.PIPE,
        env={**os.environ, progress.VARIABLE: f"/any/cache/jobs/{rig}/{name}/{jobs.PROGRESS}"},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        if process.poll() is None:
            process.kill()


@pytest.fixture
def sleeper(tiny: Rig) -> Iterator["subprocess.Popen[bytes]"]:
    with asleep(tiny.name, "speed-1") as process:
        yield process


@pytest.fixture
def foreign() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that no job of ours has to do with."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


def written(of: str, process: int, **more: Any) -> dict[str, Any]:
    """What scripts/job.py writes of a process."""
    place, found = identity.here(), identity.stat(process)
    told = {"verb": "speed", "rig": of, "port": 1, "quick": True, "resume": False}
    told |= {"started": "2026-01-01T00:00:00", "pid": process, "ticks": found.ticks if found else 1}
    return {**told, **dataclasses.asdict(place), **more}


def made(of: Rig, pid: int, name: str = "speed-1", **more: Any) -> Job:
    """A job's folder as scripts/job.py would have written it."""
    folder = jobs.home(of) / name
    folder.mkdir(parents=True)
    told = written(of.name, pid, **{"port": of.port, **more})
    (folder / jobs.RECORD).write_text(json.dumps(told))
    return jobs.find(of, name)


def running(of: Rig, sleeper: "subprocess.Popen[bytes]", **more: Any) -> Job:
    return made(of, sleeper.pid, **more)


def test_states(tiny: Rig, sleeper: "subprocess.Popen[bytes]") -> None:
    job = running(tiny, sleeper)
    assert (job.state, job.exit_code, job.ended) == ("running", None, None)
    jobs.note_end(job.folder, 0)
    assert job.state == "finished"
    jobs.note_end(job.folder, 1)
    assert (job.state, job.exit_code) == ("failed", 1)
    (job.folder / jobs.CANCEL).touch()
    assert job.state == "cancelled"
    gone = made(tiny, sleeper.pid, "speed-2")  # the id belongs to another process
    assert gone.state == "lost"


def test_what_a_record_names_is_not_ended_for_that(
    tiny: Rig, foreign: "subprocess.Popen[bytes]", sleeper: "subprocess.Popen[bytes]"
) -> None:
    """A process of somebody else, the first of all, and that of another job."""
    for name, pid in (("speed-1", foreign.pid), ("speed-2", 1), ("speed-3", sleeper.pid)):
        job = made(tiny, pid, name)
        assert job.state == "lost"
        jobs.cancel(job)
    assert foreign.poll() is sleeper.poll() is None


def test_a_job_of_another_place_is_not_lost(
    tiny: Rig, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "KEPT", 0)
    job = running(tiny, sleeper)
    here = identity.here()
    for change in ({"host": "another"}, {"namespace": "pid:[1]"}):
        there = dataclasses.replace(here, **change)
        monkeypatch.setattr(identity, "here", lambda there=there: there)
        assert (job.state, job.elsewhere) == ("elsewhere", True)
        with pytest.raises(RigError, match=rf"^speed-1 was started on {here.host}; cancel it th"):
            jobs.cancel(job)
        jobs._forget_old(tiny)
        assert jobs.of_rig(tiny) == [job]
    monkeypatch.setattr(identity, "here", lambda: dataclasses.replace(here, boot="later"))
    assert job.state == "lost"  # nothing outlives a boot
    jobs.note_end(job.folder, 0)
    assert job.state == "finished"
    assert sleeper.poll() is None


def test_a_step_of_the_clock_loses_no_job(
    tiny: Rig, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    job = running(tiny, sleeper)
    monkeypatch.setattr("time.time", lambda: 1e10)
    assert job.state == "running"


LEADER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def test_a_measurement_whose_script_was_killed_is_known_and_can_be_cancelled(tiny: Rig) -> None:
    variable = {progress.VARIABLE: f"/jobs/{tiny.name}/speed-1/{jobs.PROGRESS}"}
    with subprocess.Popen(
        [sys.executable, "-c", LEADER, CHILD],
        start_new_session=True,
        stdout=subprocess.PIPE,
        env={**os.environ, **variable},
    ) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        job = made(tiny, leader.pid)
        leader.kill()
        leader.wait()
    assert (job.state, job.processes()) == ("running", [child])
    assert jobs.running() == [job]
    jobs.cancel(job)
    assert job.state == "cancelled"
    assert identity.stat(child) is None


def test_cancel_comes_with_force_in_the_end(tiny: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ((signal.SIGINT, 0.1), (signal.SIGTERM, 0.1), (signal.SIGKILL, 5.0))
    monkeypatch.setattr(jobs, "WAYS_TO_END", ways)
    with asleep(tiny.name, "speed-1", STUBBORN) as process:
        job = made(tiny, process.pid)
        jobs.cancel(job)
        assert process.wait() == -signal.SIGKILL
    assert job.state == "cancelled"


@pytest.mark.parametrize("name", ["../speed-1", "speed-1/", "", ".", "/", "*", "speed-1\n", "x\0"])
def test_odd_names_find_nothing(tiny: Rig, sleeper: "subprocess.Popen[bytes]", name: str) -> None:
    running(tiny, sleeper)
    with pytest.raises(RigError, match="has no job"):
        jobs.find(tiny, name)


def test_damaged_records_are_passed_over(tiny: Rig, sleeper: "subprocess.Popen[bytes]") -> None:
    for name, content in (
        ("a", "{"),
        ("b", "[]"),
        ("c", '{"verb": "speed"}'),
        ("d", "\xff"),
        ("e", "[" * 100_000),
    ):
        (jobs.home(tiny) / name).mkdir(parents=True)
        (jobs.home(tiny) / name / jobs.RECORD).write_bytes(content.encode("latin1"))
    job = running(tiny, sleeper)
    assert jobs.of_rig(tiny) == jobs.running() == [job]


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(jobs.Record)])
def test_a_record_of_odd_values_is_passed_over(
    tiny: Rig, sleeper: "subprocess.Popen[bytes]", key: str
) -> None:
    folder = jobs.home(tiny) / "odd"
    folder.mkdir(parents=True)
    odd = written(tiny.name, sleeper.pid, **{key: ["odd"]})
    (folder / jobs.RECORD).write_text(json.dumps(odd))
    assert jobs.of_rig(tiny) == jobs.running() == []


def test_one_measurement_at_a_time_also_of_another_rig(tiny: Rig) -> None:
    folder = jobs.home(tiny).with_name("local-llamacpp-cpu-270m-q4_k_m") / "sweep-1"
    folder.mkdir(parents=True)
    with asleep(folder.parent.name, "sweep-1") as process:
        told = written(folder.parent.name, process.pid, verb="sweep")
        (folder / jobs.RECORD).write_text(json.dumps(told))
        with pytest.raises(RigError, match=r"sweep of .*270m.* is being measured \(job sweep-1\)"):
            jobs.measure(tiny, "speed", quick=True, resume=False)
        with pytest.raises(RigError, match=r"is being measured"):
            jobs.serve(tiny)


def test_a_server_of_another_rig_on_the_port(tiny: Rig, sleeper: "subprocess.Popen[bytes]") -> None:
    running(tiny, sleeper, verb="serve", rig="local-llamacpp-cpu-270m-q4_k_m")
    with pytest.raises(RigError, match=r"270m.* is served on port .*stop_server"):
        jobs.measure(tiny, "speed", quick=True, resume=False)


def test_a_server_from_a_terminal(tiny: Rig, fake: Callable[..., Engine], tmp_path: Path) -> None:
    """From the moment it is started."""
    with (
        record.serving(tiny) as note,
        Server(tiny, fake(), tmp_path / "log", started=note.started),
    ):
        for _ in range(2):
            assert jobs.serve(tiny) == (None, True)
            with pytest.raises(RigError, match="is being served at"):
                jobs.measure(tiny, "speed", quick=True, resume=False)
            note.ready()


def test_the_kinds_are_scripts() -> None:
    for kind in (*jobs.KINDS, jobs.SERVE):
        assert Path(_cli.command(kind)[1]).is_file()


def test_old_ended_jobs_are_forgotten_running_ones_kept(
    tiny: Rig, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "KEPT", 2)
    running(tiny, sleeper, name="speed-1", started="2025-01-01T00:00:00")
    for number in range(2, 6):
        made(tiny, 1, f"speed-{number}", started=f"2026-01-0{number}T00:00:00")
    jobs._forget_old(tiny)
    assert [job.id for job in jobs.of_rig(tiny)] == ["speed-5", "speed-4", "speed-1"]


def test_the_newest_comes_first_also_of_one_second(tiny: Rig) -> None:
    for name, ticks in (("speed-b", 2), ("speed-c", 1), ("speed-a", 3)):
        made(tiny, 1, name, ticks=ticks)
    assert [job.id for job in jobs.of_rig(tiny)] == ["speed-a", "speed-b", "speed-c"]


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert jobs.tail(log, 3) == []
    log.write_bytes(b"one\ntwo\n 1/9\r 2/9\r 3/9\nhalf \xff")
    assert jobs.tail(log, 2) == [" 3/9", "half �"]
    log.write_text("".join(f"{number}\n" for number in range(100_000)))
    assert jobs.tail(log, 2) == ["99998", "99999"]
    assert len(jobs.tail(log, 100_000)) < 50_000  # bounded, and the first one may be cut


def test_progress_and_the_run_it_measures_into(
    tiny: Rig,
    sleeper: "subprocess.Popen[bytes]",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = running(tiny, sleeper)
    assert (job.run_folder, job.trials()) == (None, (0, None))
    run = tmp_path / "runs" / "2026-01-01-speed-cpu"
    run.mkdir(parents=True)
    progress.tell(run, 0, 9)  # nobody asked for it
    assert progress.read(job.folder / jobs.PROGRESS) is None
    monkeypatch.setenv(progress.VARIABLE, str(job.folder / jobs.PROGRESS))
    progress.tell(run, 0, 9)
    assert (job.run_folder, job.trials()) == (run, (0, 9))
    progress.tell(run, 3, None)
    assert job.trials() == (3, None)
    (job.folder / jobs.PROGRESS).write_text("{half")
    assert (job.run_folder, job.trials()) == (None, (0, None))
    (job.folder / jobs.LOG).write_text("error: first\n at once\nstopped\nerror: why\nmore\n")
    assert job.why_it_ended() == "error: why\nmore"


def test_two_starts_wait_for_each_other(tmp_path: Path) -> None:
    """A thread stands for the other client: a lock is held by an open file, not by a process."""
    done = tmp_path / "second"

    def second() -> None:
        with jobs._alone():
            done.touch()

    with jobs._alone():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.2)
        assert not done.exists()
    thread.join(10)
    assert done.exists()


def test_a_start_that_hangs_is_said_not_waited_for(
    tiny: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LOCK_S", 0.1)
    with jobs._alone():
        for start in (
            lambda: jobs.serve(tiny),
            lambda: jobs.measure(tiny, "speed", quick=True, resume=False),
        ):
            with pytest.raises(RigError, match=r"another start is going on .*\.lock\); try again"):
                start()


@pytest.mark.parametrize("what", ["file", "missing"])
def test_a_cache_that_cannot_be_written_is_one_line(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    cache = tmp_path / "odd"
    cache.touch() if what == "file" else cache.symlink_to("/proc/none/here")
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(cache))
    with pytest.raises(RigError, match=r"cannot be written \(.*GEMMA_RIGS_CACHE") as said:
        jobs.serve(tiny)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("kind", ["identity", "accuracy"])
def test_quick_is_refused_where_there_is_no_quick_form(kind: str, tiny: Rig) -> None:
    tool = RunTools(tiny.folder).start_measurement
    for start in (lambda: jobs.measure(tiny, kind, True, False), lambda: tool(kind, quick=True)):
        with pytest.raises(RigError, match=f"^{kind} has no quick form; start it without quick$"):
            start()
    assert jobs.of_rig(tiny) == []
    assert not jobs.home(tiny).exists()
