"""Identity: what tells a process from every other, whatever is done to the clock.

A process is known by its host, that host's boot, its namespace of process ids (a container has its
own), its id and the ticks since boot when it began. Linux only.
"""

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from common.errors import RigError

PROC = Path("/proc")
BOOT = PROC / "sys" / "kernel" / "random" / "boot_id"
NAMESPACE = PROC / "self" / "ns" / "pid"


@dataclass(frozen=True)
class Place:
    """Where a process id means something."""

    host: str
    boot: str
    namespace: str


@dataclass(frozen=True)
class Stat:
    """What the kernel says of a process that has not ended."""

    group: int
    ticks: int
    """since boot, when it began"""


def here() -> Place:
    try:
        return Place(socket.gethostname(), BOOT.read_text().strip(), str(NAMESPACE.readlink()))
    except OSError as error:
        raise RigError(
            f"this host does not say what it is ({error}); /proc must be mounted"
        ) from None


def stat(pid: int) -> Stat | None:
    """None if there is no such process, or only its exit code is left of it."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    # The second field is a name in brackets, which may hold blanks and brackets.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else Stat(int(fields[2]), int(fields[19]))


def is_same(pid: int, ticks: int) -> bool:
    """Whether the process of this id that began then still runs."""
    found = stat(pid)
    return found is not None and found.ticks == ticks


def age_s(ticks: int) -> float:
    """For how long a process that began then has been there."""
    since = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return max(0.0, since)


def group(leader: int) -> list[int]:
    """The processes of a process group that have not ended."""
    pids = [int(folder.name) for folder in PROC.iterdir() if folder.name.isdecimal()]
    return [pid for pid in pids if (found := stat(pid)) and found.group == leader]


def line(pid: int) -> list[str]:
    """Its command line; empty if it has ended or is not to be seen."""
    return _texts(pid, "cmdline")


def environment(pid: int) -> list[str]:
    """NAME=value as it was started with; empty if it has ended or belongs to another user."""
    return _texts(pid, "environ")


def _texts(pid: int, name: str) -> list[str]:
    try:
        content = (PROC / str(pid) / name).read_bytes()
    except OSError:
        return []
    return content.decode(errors="replace").split("\0")[:-1]
