"""Jobs: how many compilers run at once, by the cores and the memory that this process may use.

Needs the standard library only: engines are built in an image without packages.
"""

import os
import re
from pathlib import Path

JOB_GIB = {"cpu": 1.0, "cuda": 2.0}
"""what one compiler takes of llama.cpp's larger files"""
PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def jobs(backend: str) -> int:
    """At least one; no more than there are usable cores, or room for."""
    cores, memory = usable_cores(), usable_memory()
    if memory is None:
        return cores
    return max(1, min(cores, int(memory / 2**30 / JOB_GIB[backend])))


def usable_cores() -> int:
    """The cores this process may run on (taskset, a container's set), and its share of their time
    (a container's quota), whichever is less."""
    cores = len(os.sched_getaffinity(0))
    for folder in _groups():
        quota = re.fullmatch(r"(\d+) (\d+)\s*", _text(folder / "cpu.max"))
        if quota and int(quota[2]):
            cores = min(cores, max(1, int(quota[1]) // int(quota[2])))
    return cores


def usable_memory() -> int | None:
    """Bytes free on this host, or left below the limit of a group this process is in, whichever is
    less; None where nothing says."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", _text(PROC / "meminfo"), re.MULTILINE)
    left = [int(found[1]) * 1024] if found else []
    for folder in _groups():
        limit, used = _text(folder / "memory.max"), _text(folder / "memory.current")
        if limit.strip().isdecimal() and used.strip().isdecimal():
            # What was read of files counts as used, but the kernel lets go of it first.
            cached = re.search(r"^inactive_file (\d+)", _text(folder / "memory.stat"), re.MULTILINE)
            taken = int(used) - (int(cached[1]) if cached else 0)
            left.append(max(0, int(limit) - taken))
    return min(left, default=None)


def _groups() -> list[Path]:
    """The folders of this process's control groups (cgroup v2), inmost first."""
    found = re.search(r"^0::/(.*)$", _text(PROC / "self" / "cgroup"), re.MULTILINE)
    inmost = CGROUPS / (found[1] if found else "")
    return [path for path in (inmost, *inmost.parents) if path.is_relative_to(CGROUPS)]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
