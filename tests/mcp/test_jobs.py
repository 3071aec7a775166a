"""Jobs as their folders tell them; real ones are in test_server.py."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from common.errors import RigError
from common.mcp import jobs
from common.mcp.jobs import Job
from common.mcp.run_tools import RunTools
from common.measure import progress
from common.rig import Rig
from common.serving import record
from scripts import _cli


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group, as scripts/job.py does."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


def made(rig: Rig, pid: int, created: float, name: str = "speed-1", **more: Any) -> Job:
    """A job's folder as scripts/job.py would have written it."""
    folder = jobs.home(rig) / name
    folder.mkdir(parents=True)
    record = {"verb": "speed", "rig": rig.name, "port": rig.port, "quick": True, "resume": False}
    record |= {"started": "2026-01-01T00:00:00", "pid": pid, "created": created, **more}
    (folder / jobs.RECORD).write_text(json.dumps(record))
    return jobs.find(rig, name)


def running(rig: Rig, sleeper: "subprocess.Popen[bytes]", **more: Any) -> Job:
    return made(rig, sleeper.pid, psutil.Process(sleeper.pid).create_time(), **more)


def test_states(tiny: Rig, sleeper: "subprocess.Popen[bytes]") -> None:
    job = running(tiny, sleeper)
    assert (job.state, job.exit_code, job.ended) == ("running", None, None)
    jobs.note_end(job.folder, 0)
    assert job.state == "finished"
    jobs.note_end(job.folder, 1)
    assert (job.state, job.exit_code) == ("failed", 1)
    (job.folder / jobs.CANCEL).touch()
    assert job.state == "cancelled"
    gone = made(tiny, sleeper.pid, 1.0, "speed-2")  # the id belongs to a later process
    assert gone.state == "lost"


def test_a_later_process_of_the_same_id_is_not_touched(
    tiny: Rig, sleeper: "subprocess.Popen[bytes]"
) -> None:
    jobs.cancel(made(tiny, sleeper.pid, 1.0))
    time.sleep(0.1)
    assert sleeper.poll() is None


def test_cancel_comes_with_force_in_the_end(tiny: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = "import signal, time\nfor n in (2, 15): signal.signal(n, lambda *_: None)\n"
    stubborn += "print(flush=True)\nwhile True: time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", stubborn], start_new_session=True, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        ways = ((signal.SIGINT, 0.1), (signal.SIGTERM, 0.1), (signal.SIGKILL, 5.0))
        monkeypatch.setattr(jobs, "WAYS_TO_END", ways)
        job = made(tiny, process.pid, psutil.Process(process.pid).create_time())
        jobs.cancel(job)
        assert process.wait() == -signal.SIGKILL
    assert job.state == "cancelled"


@pytest.mark.parametrize("name", ["../speed-1", "speed-1/", "", ".", "/", "*", "speed-1\n", "x\0"])
def test_odd_names_find_nothing(tiny: Rig, sleeper: "subprocess.Popen[bytes]", name: str) -> None:
    running(tiny, sleeper)
    with pytest.raises(RigError, match="has no job"):
        jobs.find(tiny, name)


def test_damaged_records_are_passed_over(tiny: Rig, sleeper: "subprocess.Popen[bytes]") -> None:
    for name, content in (("a", "{"), ("b", "[]"), ("c", '{"verb": "speed"}'), ("d", "\xff")):
        (jobs.home(tiny) / name).mkdir(parents=True)
        (jobs.home(tiny) / name / jobs.RECORD).write_bytes(content.encode("latin1"))
    job = running(tiny, sleeper)
    assert jobs.of_rig(tiny) == jobs.running() == [job]


def test_one_measurement_at_a_time_also_of_another_rig(
    tiny: Rig, sleeper: "subprocess.Popen[bytes]"
) -> None:
    folder = jobs.home(tiny).with_name("local-llamacpp-cpu-270m-q4_k_m") / "sweep-1"
    folder.mkdir(parents=True)
    record = {"verb": "sweep", "rig": folder.parent.name, "port": 1, "quick": True}
    record |= {"resume": False, "started": "2026", "pid": sleeper.pid}
    record["created"] = psutil.Process(sleeper.pid).create_time()
    (folder / jobs.RECORD).write_text(json.dumps(record))
    with pytest.raises(RigError, match=r"sweep of .*270m.* is being measured \(job sweep-1\)"):
        jobs.measure(tiny, "speed", quick=True, resume=False)
    with pytest.raises(RigError, match=r"is being measured"):
        jobs.serve(tiny)


def test_a_server_of_another_rig_on_the_port(tiny: Rig, sleeper: "subprocess.Popen[bytes]") -> None:
    job = running(tiny, sleeper, verb="serve")
    told = json.loads((job.folder / jobs.RECORD).read_text())
    told["rig"] = "local-llamacpp-cpu-270m-q4_k_m"
    (job.folder / jobs.RECORD).write_text(json.dumps(told))
    with pytest.raises(RigError, match=r"270m.* is served on port .*stop_server"):
        jobs.measure(tiny, "speed", quick=True, resume=False)


def test_a_server_from_a_terminal(tiny: Rig, sleeper: "subprocess.Popen[bytes]") -> None:
    record.record(tiny, sleeper.pid)
    assert jobs.serve(tiny) == (None, True)
    with pytest.raises(RigError, match="is being served at"):
        jobs.measure(tiny, "speed", quick=True, resume=False)


def test_the_kinds_are_scripts() -> None:
    for kind in (*jobs.KINDS, jobs.SERVE):
        assert Path(_cli.command(kind)[1]).is_file()


def test_old_ended_jobs_are_forgotten_running_ones_kept(
    tiny: Rig, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "KEPT", 2)
    running(tiny, sleeper, name="speed-0", started="2025-01-01T00:00:00")
    for number in range(1, 5):
        made(tiny, sleeper.pid, 1.0, f"speed-{number}", started=f"2026-01-0{number}T00:00:00")
    jobs._forget_old(tiny)
    assert [job.id for job in jobs.of_rig(tiny)] == ["speed-4", "speed-3", "speed-0"]


def test_the_newest_comes_first_also_of_one_second(tiny: Rig) -> None:
    for name, created in (("speed-b", 2.0), ("speed-c", 1.0), ("speed-a", 3.0)):
        made(tiny, 1, created, name)
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


@pytest.mark.parametrize("kind", ["identity", "accuracy"])
def test_quick_is_refused_where_there_is_no_quick_form(kind: str, tiny: Rig) -> None:
    tool = RunTools(tiny.folder).start_measurement
    for start in (lambda: jobs.measure(tiny, kind, True, False), lambda: tool(kind, quick=True)):
        with pytest.raises(RigError, match=f"^{kind} has no quick form; start it without quick$"):
            start()
    assert jobs.of_rig(tiny) == []
    assert not jobs.home(tiny).exists()
