"""Alone: one measurement at a time on a host, since two would measure each other.

A lock that the kernel lets go of when its holder ends in any way. It lies outside every cache, so
that it is the same for all users, terminals and checkouts; in a container it lies in a volume that
all of them share, and scripts/in_docker.sh holds the host's own while a container measures.
"""

import contextlib
import fcntl
import json
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TextIO

from common.engines.llamacpp.build import CONTAINER
from common.errors import RigError

VARIABLE = "GEMMA_RIGS_LOCK"
"""names another file, for hosts where the usual one cannot be, and for tests"""
HOST = Path("/tmp/gemma-rigs-measuring.lock")  # noqa: S108 (every user's, on purpose)
SHARED = Path("/kernels")
LABEL = "gemma-rigs.run"
MEASURES = ("scripts/measure.py", "scripts/tune.py", "scripts/bench_")
DOCKER_S = 10.0
PATIENCE_S = 0.5
WAIT = "wait for it, or end it; two would disturb each other"


def file() -> Path:
    """The lock file."""
    if own := os.environ.get(VARIABLE):
        return Path(own)
    return SHARED / HOST.name if CONTAINER.is_file() and SHARED.is_dir() else HOST


@contextlib.contextmanager
def measuring(what: str) -> Iterator[None]:
    """Hold this host's lock; `what` is what others are told. Raises RigError if it is held."""
    with _opened() as lock:
        _take(lock)
        lock.truncate(0)
        started = datetime.now().astimezone().isoformat(timespec="seconds")
        lock.write(json.dumps({"what": what, "pid": os.getpid(), "started": started}) + "\n")
        lock.flush()
        if container := in_container():
            raise RigError(container, fix=WAIT)
        yield
        lock.truncate(0)


def check() -> None:
    """Raises RigError if something is being measured on this host."""
    with _opened() as lock:
        _take(lock)
    if container := in_container():
        raise RigError(container, fix=WAIT)


def _take(lock: TextIO) -> None:
    """The lock, or RigError that names its holder. `check` holds it for a moment only."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > limit:
                raise RigError(f"{_holder(lock)} on this host", fix=WAIT) from None
        time.sleep(0.05)


def _holder(lock: TextIO) -> str:
    try:
        lock.seek(0)
        found = json.loads(lock.read(4096))
        what, pid, since = (_plain(str(found[key])) for key in ("what", "pid", "started"))
        return f"{what} is being measured since {since} (process {pid})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"something is being measured (it holds {file()})"


def _plain(text: str) -> str:
    """What a terminal may be told of what anybody could have written."""
    return "".join(letter for letter in text[:200] if letter.isprintable())


def _opened() -> TextIO:
    """The lock file, made if need be, for every user to lock.

    One that is there is opened without the wish to make it: in a folder like /tmp the kernel
    refuses that for another user's file.
    """
    path = file()
    try:
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                return _checked(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK))
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(number, 0o666)  # whatever the umask is
                return _checked(number)
        raise FileNotFoundError(f"{path} comes and goes")
    except OSError as error:
        raise RigError(
            f"the lock of this host's measurements, {path}, cannot be used: "
            f"{error.strerror or error}",
            fix=f"delete it, or name another file with {VARIABLE}=...",
        ) from None


def _checked(number: int) -> TextIO:
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError("it is no regular file")
    return os.fdopen(number, "r+", encoding="utf-8", errors="replace")


def in_container() -> str | None:
    """What a running container of this project on this host's own Docker measures, in words."""
    if CONTAINER.is_file():
        return None
    for line in _docker("ps", "--filter", f"label={LABEL}", "--format", "{{.ID}} {{.Names}}"):
        number, _, name = line.partition(" ")
        if any(word in process for process in _docker("top", number) for word in MEASURES):
            return f"the container {name} is measuring on this host"
    return None


def _docker(*arguments: str) -> list[str]:
    """Lines that Docker says; none where it is not installed, or does not answer."""
    elsewhere = ("DOCKER_HOST", "DOCKER_CONTEXT")
    environment = {key: value for key, value in os.environ.items() if key not in elsewhere}
    try:
        done = subprocess.run(
            ["docker", "--context", "default", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOCKER_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()
