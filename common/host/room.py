"""Room: the memory and the processors that this host, or the container's limit, leaves."""

import os
from pathlib import Path

import psutil

from common.engines.llamacpp import memory
from common.errors import RigError
from common.rig import Rig

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
# Of both versions: the limit, what is used, and what of that is cache that can be given back.
VERSIONS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def free_mib() -> tuple[float, str]:
    """MiB of memory that can be had, and whose they are."""
    host = psutil.virtual_memory().available / 2**20
    limits = [left / 2**20 for left in map(_left, _cgroups()) if left is not None]
    if limits and min(limits) < host:
        return max(0.0, min(limits)), "the container's or service's memory limit"
    return host, "this host's memory"


def _cgroups() -> list[Path]:
    """The folders of this process's control groups, and those above them: each has its limit."""
    try:
        lines = OWN_CGROUP.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _number, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds not in ("", "memory"):
            continue
        top = CGROUPS / kinds
        own = top / path.lstrip("/")
        # In a container the path may be the host's, which is not there: then the top is its own.
        found += [own, *own.parents] if own.is_dir() else [top]
    return [folder for folder in found if folder.is_relative_to(CGROUPS)]


def _left(folder: Path) -> int | None:
    """Bytes that a control group may still take; None where it has no limit."""
    for limit, used, cache in VERSIONS:
        try:
            most = int((folder / limit).read_text())
            taken = int((folder / used).read_text())
            lines = (folder / "memory.stat").read_text().splitlines()
        except (OSError, ValueError):
            continue
        stat = dict(line.split(" ", 1) for line in lines if " " in line)
        return most - taken + int(stat.get(cache, 0))
    return None


def check(rig: Rig) -> None:
    """Raise RigError, with the arithmetic, where this host cannot serve the rig: llama-server would
    start all the same, and not answer for minutes."""
    if rig.threads is not None and rig.threads > processors():
        raise RigError(
            f"THREADS={rig.threads}, but {processors()} processors can be used here",
            fix="lower THREADS, or leave it empty for llama.cpp's own choice",
        )
    if rig.backend != "cpu":
        return
    try:
        need = memory.need(rig)
    except RigError:  # what is wrong with a file is said where it is checked or loaded
        return
    free, whose = free_mib()
    if need is not None and need.total > free:
        parts = ", ".join(f"{name} {mib:,.0f}" for name, mib in need.parts() if mib)
        raise RigError(
            f"CTX_SIZE={rig.ctx_size} needs about {need.total:,.0f} MiB ({parts}), "
            f"{free:,.0f} are left of {whose}",
            fix="lower CTX_SIZE or PARALLEL, or close what else uses memory",
        )
