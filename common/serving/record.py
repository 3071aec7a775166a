"""Record: what is kept of a rig's server, so that another terminal can find and stop it."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from common import places
from common.errors import RigError
from common.rig import Rig

STOP_S = 15.0


@dataclass(frozen=True)
class Serving:
    """A llama-server that `serve` started. `created` tells it from a later process of that id."""

    pid: int
    created: float
    url: str
    log: str

    @property
    def process(self) -> psutil.Process | None:
        """The process, or None if it has ended."""
        return process_of(self.pid, self.created)


def process_of(pid: int, created: float) -> psutil.Process | None:
    """The process of this id that began at this time, or None if it has ended."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < 1
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def record_file(rig: Rig) -> Path:
    return places.cache() / "serving" / f"{rig.name}.json"


def log_file(rig: Rig) -> Path:
    return places.cache() / "serving" / f"{rig.name}.log"


def find(rig: Rig) -> Serving | None:
    """The rig's running server, or None. A record whose process is gone is removed."""
    file = record_file(rig)
    try:
        serving = Serving(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    if serving.process is None:
        file.unlink(missing_ok=True)
        return None
    return serving


def record(rig: Rig, pid: int) -> None:
    """Note that the process `pid` serves this rig."""
    serving = Serving(pid, psutil.Process(pid).create_time(), rig.url, str(log_file(rig)))
    file = record_file(rig)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(serving)) + "\n")


def forget(rig: Rig) -> None:
    record_file(rig).unlink(missing_ok=True)


def stop(serving: Serving) -> float:
    """Stop it in order, with force after 15 seconds; returns the seconds it took.

    Raises RigError if it belongs to another user or will not go.
    """
    start = time.monotonic()
    process = serving.process
    if process is None:
        return 0.0
    try:
        process.terminate()
        _gone, alive = psutil.wait_procs([process], STOP_S)
        for stubborn in alive:
            stubborn.kill()
        _gone, alive = psutil.wait_procs(alive, 5)
    except psutil.NoSuchProcess:
        alive = []
    except psutil.AccessDenied:
        raise RigError(f"process {serving.pid} belongs to another user; stop it there") from None
    if alive:
        raise RigError(f"process {serving.pid} does not end, even when killed")
    return time.monotonic() - start
