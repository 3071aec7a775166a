"""Job: a measurement or a server that runs in the background, and is found again from anywhere.

One folder a job, below `jobs` in the cache. Each file in it has one writer:
job.json   what it is and which process (scripts/job.py)
log        what the script says
cancel     there if somebody asked it to end
end.json   its exit code and when it ended (scripts/job.py)
progress.json  its run directory and trials (the measurement)
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from common import atomic, kinds, places
from common.errors import RigError
from common.host import alone
from common.measure import progress, run
from common.rig import ROOT, Rig
from common.serving import identity, process, record
from common.serving.identity import Place

KINDS = tuple(kind.name for kind in kinds.KINDS if kind.of_rig)
SERVE = "serve"
RECORD = "job.json"
LOG = "log"
CANCEL = "cancel"
END = "end.json"
PROGRESS = "progress.json"
KEPT = 100  # ended jobs of a rig whose logs are kept
LOCK_S = 5.0  # for another start to be over
BEGIN_S = 30.0
# Ctrl-C first: the run then keeps its journal, and its server is stopped in order.
WAYS_TO_END = ((signal.SIGINT, 30.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0))
TAIL_BYTES = 256 << 10


@dataclass(frozen=True)
class Record:
    """What job.json holds. `pid` is scripts/job.py, which leads a process group of its own; it
    means something in this place only."""

    verb: str
    rig: str
    port: int
    quick: bool
    resume: bool
    started: str
    host: str
    boot: str
    namespace: str
    pid: int
    ticks: int
    """since boot, when it began"""

    @property
    def place(self) -> Place:
        return Place(self.host, self.boot, self.namespace)


@dataclass(frozen=True)
class Job:
    """One job, as its folder says."""

    folder: Path
    record: Record

    @property
    def id(self) -> str:
        return self.folder.name

    def processes(self) -> list[int]:
        """The processes of its group that run: scripts/job.py, the measurement, or only that.

        They are told by their environment, which names this job: what a record says is not enough
        to end a process for.
        """
        if self.record.place != identity.here():
            return []
        mine = f"/{self.folder.parent.name}/{self.id}/{PROGRESS}"
        return [
            pid
            for pid in identity.group(self.record.pid)
            if any(
                entry.startswith(f"{progress.VARIABLE}=") and entry.endswith(mine)
                for entry in identity.environment(pid)
            )
        ]

    @property
    def elsewhere(self) -> bool:
        """Whether nobody here can know if it runs: on another host, or in another container."""
        there, here = self.record.place, identity.here()
        return there.host != here.host or (
            there.boot == here.boot and there.namespace != here.namespace
        )

    @property
    def exit_code(self) -> int | None:
        """As the shell has it; negative if a signal ended it. None: still running, or not noted."""
        try:
            return int(json.loads((self.folder / END).read_text())["code"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def state(self) -> str:
        """running, finished, failed, cancelled, lost (it is gone and left no exit code), or
        elsewhere (it was started on another host, or in another container, and has not ended)."""
        code = self.exit_code
        if code is None:
            if self.processes():
                return "running"
            if self.elsewhere:
                return "elsewhere"
            code = self.exit_code  # noted just before the end
        if code == 0:
            return "finished"
        if (self.folder / CANCEL).exists():
            return "cancelled"
        return "lost" if code is None else "failed"

    @property
    def ended(self) -> str | None:
        try:
            return str(json.loads((self.folder / END).read_text())["ended"])
        except (OSError, ValueError, KeyError):
            return None

    def log_lines(self, count: int) -> list[str]:
        return tail(self.folder / LOG, count)

    @property
    def run_folder(self) -> Path | None:
        """The run directory that it measures into, once there is one."""
        found = progress.read(self.folder / PROGRESS)
        return Path(found.run) if found else None

    def trials(self) -> tuple[int, int | None]:
        """Trials done, and in all as far as that is known."""
        found = progress.read(self.folder / PROGRESS)
        return (found.done, found.total) if found else (0, None)

    def why_it_ended(self) -> str:
        """The error it closed with, or its last lines."""
        lines = self.log_lines(60)
        errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
        said = lines[errors[-1] :] if errors else lines[-5:]
        return "\n".join(said)[:4000] or "it said nothing"


def tail(path: Path, count: int) -> list[str]:
    """The last `count` lines of a file, as far as they lie in its last 256 KiB; [] without it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    # A progress bar begins its line again and again; what counts is its last state.
    lines = [line.rsplit("\r", 1)[-1] for line in text.split("\n")]
    return lines[:-1][-count:] if lines[-1] == "" else lines[-count:]


def home(rig: Rig) -> Path:
    return places.cache() / "jobs" / rig.name


def of_rig(rig: Rig) -> list[Job]:
    """Every job of the rig, the newest first."""
    return _read_all(home(rig).glob(f"*/{RECORD}"))


def running() -> list[Job]:
    """The jobs of every rig that run now."""
    found = _read_all((places.cache() / "jobs").glob(f"*/*/{RECORD}"))
    return [job for job in found if job.state == "running"]


def find(rig: Rig, name: str) -> Job:
    """The rig's job of this id. Raises RigError if there is none; no path is made of `name`."""
    for job in of_rig(rig):
        if job.id == name:
            return job
    raise RigError(f"{rig.name} has no job {name!r}; list_jobs names those there are")


def serve(rig: Rig) -> tuple[Job | None, bool]:
    """Start `serve` in the background; returns its job, and whether the rig was served already.

    A server that is starting counts as one. Without a job it was started in a terminal. Raises
    RigError while something is measured, or if the port is taken.
    """
    with _alone():
        mine = [job for job in running() if job.record.verb == SERVE and job.record.rig == rig.name]
        if record.find(rig) is not None or mine:
            return (mine[0] if mine else None), True
        _check_nothing_measured("so a server would disturb it")
        process.check_port(rig)
        return _start(rig, SERVE, False, False, {}), False


def measure(
    rig: Rig, kind: str, quick: bool, resume: bool, settings: Mapping[str, str] | None = None
) -> Job:
    """Start a measurement in the background; `settings` beat the rig's own.

    Raises RigError if another runs, or if a server of this project has the port.
    """
    if quick and not kinds.of(kind).quick:
        raise RigError(f"{kind} has no quick form; start it without quick")
    with _alone():
        _check_nothing_measured("and two would disturb each other")
        for job in running():
            if job.record.port == rig.port:
                raise RigError(
                    f"{job.record.rig} is served on port {rig.port}, where {kind} starts its own "
                    "servers; stop it first (stop_server)"
                )
        found = record.find(rig)
        if found is not None:
            raise RigError(
                f"{rig.name} is being served at {found.url}, where {kind} starts its own servers; "
                "stop it first (stop_server)"
            )
        process.check_port(rig)
        return _start(rig, kind, quick, resume, settings or {})


def cancel(job: Job) -> None:
    """End a job as Ctrl-C does, with force if it does not go. Nothing is done if it has ended.

    Raises RigError if it belongs to another user, or will not go.
    """
    if job.state == "elsewhere":
        raise RigError(f"{job.id} was started on {job.record.host}; cancel it there")
    if not job.processes():
        return
    (job.folder / CANCEL).touch()
    for number, patience in WAYS_TO_END:
        try:
            if job.processes():
                os.killpg(job.record.pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            raise RigError(
                f"process {job.record.pid} belongs to another user; end it there"
            ) from None
        if _gone(job, patience):
            return
    raise RigError(f"process {job.record.pid} does not end, even when killed")


def note_start(folder: Path, rig: Rig, verb: str, quick: bool, resume: bool) -> None:
    """Write job.json for the calling process."""
    me, place = os.getpid(), identity.here()
    begun = identity.stat(me)
    assert begun is not None
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    where = (place.host, place.boot, place.namespace, me, begun.ticks)
    record = Record(verb, rig.name, rig.port, quick, resume, started, *where)
    _write(folder / RECORD, asdict(record))


def note_end(folder: Path, code: int) -> None:
    """Write end.json."""
    _write(folder / END, {"code": code, "ended": run.now()})


def _write(path: Path, content: dict[str, object]) -> None:
    atomic.write(path, json.dumps(content) + "\n", private=True)


def _read_all(records: Iterator[Path]) -> list[Job]:
    found = []
    for file in records:
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            record = Record(**json.loads(file.read_text()))
            kinds = {name: type(value) for name, value in asdict(record).items()}
            if kinds == Record.__annotations__:
                found.append(Job(file.parent, record))
    # two may have started in one second
    return sorted(found, key=lambda job: (job.record.started, job.record.ticks), reverse=True)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One start at a time on this host, whoever asks. Raises RigError if another does not end."""
    lock = places.private(places.cache() / "jobs") / ".lock"

    def taken() -> RigError:
        return RigError(
            f"another start is going on (it holds {lock})",
            fix="try again; if that lasts, end the program that holds it (fuser shows it)",
        )

    with record.alone(lock, LOCK_S, taken):
        yield


def _check_nothing_measured(why: str) -> None:
    """Neither by a job of this cache, nor by anything else on this host."""
    for job in running():
        if job.record.verb != SERVE:
            raise RigError(
                f"{job.record.verb} of {job.record.rig} is being measured (job {job.id}), {why}; "
                "wait for it (follow_job), or cancel it (cancel_job)"
            )
    alone.check()


def _start(rig: Rig, verb: str, quick: bool, resume: bool, settings: Mapping[str, str]) -> Job:
    """Start scripts/job.py in a session of its own; returns once it has written its record."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = home(rig) / f"{verb}-{stamp}-{secrets.token_hex(2)}"
    try:
        folder.mkdir(mode=0o700, parents=True)
        log = atomic.append(folder / LOG)
    except OSError as error:
        raise places.cannot_write(folder, error) from None
    _forget_old(rig)
    command = [sys.executable, str(ROOT / "scripts" / "job.py"), str(folder), verb, str(rig.folder)]
    # A job only measures: what tells a script to write into tpu.env is not handed on.
    environment = {key: value for key, value in os.environ.items() if key not in ("APPLY", "RUN")}
    environment[progress.VARIABLE] = str(folder / PROGRESS)
    environment |= {**settings, "QUICK": str(int(quick)), "RESUME": str(int(resume))}
    with log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
    limit = time.monotonic() + BEGIN_S
    while time.monotonic() < limit and process.poll() is None:
        if (folder / RECORD).is_file():
            return _read_all(iter([folder / RECORD]))[0]
        time.sleep(0.02)
    if (folder / RECORD).is_file():  # it was quick to end
        return _read_all(iter([folder / RECORD]))[0]
    said = "\n".join(tail(folder / LOG, 5)) or "it said nothing"
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    raise RigError(f"{verb} could not be started: {said}")


def _forget_old(rig: Rig) -> None:
    for job in of_rig(rig)[KEPT:]:
        if job.exit_code is not None or (not job.elsewhere and not job.processes()):
            shutil.rmtree(job.folder, ignore_errors=True)


def _gone(job: Job, patience: float) -> bool:
    limit = time.monotonic() + patience
    while job.processes():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True
