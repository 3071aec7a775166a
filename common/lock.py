"""Lock: one process at a time, and the one that waits says so.

Needs the standard library only: it serves before anything is installed.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_one(file: Path, say_waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file; the kernel lets go of it when this process ends in any way."""
    with file.open("a") as lock:  # "w" would empty the file that a link of that name leads to
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say_waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
