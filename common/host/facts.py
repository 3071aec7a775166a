"""Facts: the machine, and the commit of this project, for a manifest."""

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil

from common.rig import KEYS, ROOT

# What decides speed beside the settings: which cards are seen, how kernels and threads work.
DECIDING = ("CUDA_", "GGML_", "OMP_", "GOMP_", "KMP_", "NVIDIA_", "OPENBLAS_", "MKL_", "BLIS_")
ELSEWHERE = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX",
)  # fmt: skip
"""what turns git to another repository than the folder's own"""

NO_HARNESS = (
    ":(exclude,glob)**/benchmarks/**", ":(exclude,glob)local-*/**", ":(exclude,glob)README.md",
    ":(exclude,glob)compose.yaml",
)  # fmt: skip
"""what may change without the tree being dirty: results, and what make new-rig writes. A rig is
only data, and every manifest holds its settings"""


def harness(root: Path = ROOT) -> dict[str, Any]:
    """The commit this project is at, and whether files differ from it; both None if that cannot be
    known, as in a folder that was unpacked inside another repository.

    The image holds no git: there the make target says both in HARNESS_COMMIT and HARNESS_DIRTY.
    """
    if given := os.environ.get("HARNESS_COMMIT"):
        if not re.fullmatch("[0-9a-f]{40}([0-9a-f]{24})?", given):
            return {"commit": None, "dirty": None}
        dirty = {"0": False, "1": True}.get(os.environ.get("HARNESS_DIRTY", ""))
        return {"commit": given, "dirty": dirty}
    environment = {key: value for key, value in os.environ.items() if key not in ELSEWHERE}

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(root), *arguments]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
        except (OSError, ValueError, subprocess.CalledProcessError):
            return None
        return done.stdout.removesuffix("\n")

    top = git("rev-parse", "--show-toplevel")
    commit = git("rev-parse", "HEAD")
    if not top or not commit or Path(top).resolve() != root.resolve():
        return {"commit": None, "dirty": None}
    # All files, since git names a new folder only as a whole, which the patterns would not match.
    changes = git("status", "--porcelain", "-uall", "--", ".", *NO_HARNESS)
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def environment() -> dict[str, str]:
    """The variables that decide speed and are no settings of a rig."""
    return {
        key: value.encode(errors="surrogateescape").decode(errors="replace")
        for key, value in sorted(os.environ.items())
        if key.startswith(DECIDING) and key not in KEYS
    }


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
