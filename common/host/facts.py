"""Facts: the machine, and the commit of this project, for a manifest."""

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil

from common.rig import ROOT


def harness(root: Path = ROOT) -> dict[str, Any]:
    """The commit this project is at, and whether files differ from it.

    The image holds no git: there the make target says both in HARNESS_COMMIT and HARNESS_DIRTY.
    """
    if os.environ.get("HARNESS_COMMIT"):
        dirty = os.environ.get("HARNESS_DIRTY") == "1"
        return {"commit": os.environ["HARNESS_COMMIT"], "dirty": dirty}

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "HEAD")
    # Results are no part of the harness: a run directory does not make the tree dirty.
    # All files, since git names a new folder only as a whole, which the pattern would not match.
    changes = git("status", "--porcelain", "-uall", "--", ".", ":(exclude,glob)**/benchmarks/**")
    return {"commit": commit, "dirty": None if commit is None else bool(changes)}


def host() -> dict[str, Any]:
    """The machine: CPU, cores, memory in GiB, kernel."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file() and (match := re.search(r"model name\s*: (.*)", info.read_text())):
        model = match[1]
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
    }
