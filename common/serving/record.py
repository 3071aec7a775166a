"""Record: who serves a rig on this host, so that another terminal can find and stop it.

It is there from the moment `serve` begins until it ends. Each host has a folder of its own, for a
home may be shared by several.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from common import atomic, places
from common.engines.llamacpp import serve
from common.errors import RigError
from common.rig import Rig
from common.serving import identity
from common.serving.identity import Place

STOP_S = 15.0
KILLED_S = 5.0
LOCK_S = 2.0  # an earlier `serve` may just be ending
SCRIPT = "serve.py"


@dataclass(frozen=True)
class Serving:
    """A `serve` and its llama-server. Processes are told by when they began, in ticks since boot,
    and by their command line: what a record names is never ended for that alone."""

    host: str
    boot: str
    namespace: str
    script: int
    script_ticks: int
    pid: int
    """llama-server, which leads a process group of its own; 0 before it is started"""
    ticks: int
    ready: bool
    url: str
    log: str

    @property
    def place(self) -> Place:
        return Place(self.host, self.boot, self.namespace)

    @property
    def served_s(self) -> float:
        return identity.age_s(self.ticks or self.script_ticks)

    def server(self) -> list[int]:
        """The processes of the llama-server: itself, a script that wraps it, what that started."""
        if not self.pid or self.place != identity.here():
            return []
        found = identity.group(self.pid)
        # The id of a group whose leader has ended may be another's by now.
        ours = [pid for pid in found if serve.is_server(identity.line(pid), self.url)]
        leads = identity.stat(self.pid)
        return found if ours and (leads is None or leads.ticks == self.ticks) else []

    def serves(self) -> list[int]:
        """The `serve` itself, which holds the lock until it ends."""
        if self.place != identity.here():
            return []
        same = identity.is_same(self.script, self.script_ticks)
        is_script = any(Path(word).name == SCRIPT for word in identity.line(self.script))
        return [self.script] if same and is_script else []

    def alive(self) -> list[int]:
        return self.server() + self.serves()

    def to_end(self) -> list[int]:
        """Whom to ask to end: a ready llama-server, after which its `serve` ends by itself; else
        the `serve`, which ends what it has begun."""
        return (self.ready and self.server()) or self.serves() or self.server()


def folder() -> Path:
    """Where this host notes what it serves."""
    host = re.sub(r"[^\w.-]", "_", identity.here().host).lstrip(".")
    return places.cache() / "serving" / (host or "localhost")


def record_file(rig: Rig) -> Path:
    return folder() / f"{rig.name}.json"


def log_file(rig: Rig) -> Path:
    return folder() / f"{rig.name}.log"


def find(rig: Rig) -> Serving | None:
    """Who serves the rig, or is about to, on this host; None if nobody does any more."""
    found = _read(record_file(rig))
    return found if found is not None and found.alive() else None


def _read(file: Path) -> Serving | None:
    try:
        if not file.is_file():  # a pipe would never end
            return None
        found = Serving(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    kinds = {name: type(value) for name, value in asdict(found).items()}
    return found if kinds == Serving.__annotations__ else None


class Note:
    """The record of one `serve`, which alone writes it."""

    def __init__(self, rig: Rig) -> None:
        self.file = record_file(rig)
        place, me = identity.here(), os.getpid()
        begun = identity.stat(me)
        assert begun is not None
        self.told = Serving(
            place.host, place.boot, place.namespace, me, begun.ticks, 0, 0, False, rig.url,
            str(log_file(rig)),
        )  # fmt: skip
        self._write()

    def started(self, pid: int) -> None:
        """Note its llama-server, which has just been started."""
        begun = identity.stat(pid)
        self.told = replace(self.told, pid=pid, ticks=begun.ticks if begun else 0)
        self._write()

    def ready(self) -> None:
        self.told = replace(self.told, ready=True)
        self._write()

    def _write(self) -> None:
        try:
            atomic.write(self.file, json.dumps(asdict(self.told)) + "\n", private=True)
        except OSError as error:
            raise places.cannot_write(self.file, error) from None


@contextlib.contextmanager
def serving(rig: Rig) -> Iterator[Note]:
    """Serve the rig alone on this host, and be found until the end. Raises RigError if another
    serves it, or is about to."""
    places.private(folder())
    with alone(folder() / f"{rig.name}.lock", LOCK_S, lambda: _other(rig)):
        note = Note(rig)
        try:
            yield note
        finally:
            with contextlib.suppress(OSError):
                note.file.unlink()


def _other(rig: Rig) -> RigError:
    found = find(rig)
    how = f"is served already at {found.url}" if found and found.ready else "is being started"
    return RigError(f"{rig.name} {how}", fix="stop it with make stop")


@contextlib.contextmanager
def alone(lock: Path, patience_s: float, taken: Callable[[], RigError]) -> Iterator[None]:
    """Hold this lock file; raises what `taken` gives if another does for `patience_s`."""
    try:
        number = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise places.cannot_write(lock, error) from None
    limit = time.monotonic() + patience_s
    try:
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise taken() from None
                time.sleep(0.05)
            except OSError as error:
                raise places.cannot_write(lock, error) from None
        yield
    finally:
        os.close(number)


def stop(found: Serving) -> float:
    """Stop it in order, with force after 15 seconds; returns the seconds it took.

    One that is suspended (Ctrl-Z) is woken for it. Raises RigError if it belongs to another user or
    will not go.
    """
    begin = time.monotonic()
    name = f"process {found.pid or found.script}"
    for number, patience in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, KILLED_S)):
        told = found.to_end() if number == signal.SIGTERM else found.alive()
        try:
            for pid, what in [(pid, number) for pid in told] + [
                (pid, signal.SIGCONT) for pid in found.alive()
            ]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, what)
        except PermissionError:
            raise RigError(f"{name} belongs to another user; stop it there") from None
        limit = time.monotonic() + patience
        while found.alive() and time.monotonic() < limit:
            time.sleep(0.05)
        if not found.alive():
            return time.monotonic() - begin
    raise RigError(f"{name} does not end, even when killed")
