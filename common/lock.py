"""Lock: one process at a time, and the one that waits says so.

Needs the standard library only: it serves before anything is installed.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_one(file: Path, say_waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file; the kernel lets go of it when this process ends in any way."""
    # Neither emptied, should it be a link to another file, nor waited for, should it be a pipe.
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say_waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
