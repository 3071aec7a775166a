"""Build tools: CMake and Ninja, of this host or brought into the cache."""

import os
import shutil
import sys
from pathlib import Path

from common import tool_folder
from common.errors import RigError
from common.rig import ROOT

LOCK = ROOT / "requirements-build.lock"
NAMES = ("cmake", "ninja")


def compiler() -> list[str]:
    """The C++ compiler of this host in words: CXX (`ccache g++`), else a usual one; [] for none."""
    for words in (os.environ.get("CXX", "c++").split(), ["g++"], ["clang++"]):
        programs = [word for word in words if not word.startswith("-")]
        if programs and all(map(shutil.which, programs)):
            return words
    return []


def search_path() -> str:
    """PATH with a CMake and a Ninja on it; what this host lacks is brought first.

    Raises RigError if they are neither here nor to be had.
    """
    own = os.environ.get("PATH", os.defpath)
    if all(shutil.which(name) for name in NAMES):
        return own
    home = tool_folder.place("build", LOCK)
    if not home.is_dir():
        try:
            tool_folder.bring(home, LOCK, Path(sys.executable))
        except RigError as error:
            raise RigError(
                "CMake and Ninja are needed to build llama.cpp and the package index does not give "
                f"them ({error}); install them, on Debian or Ubuntu: apt install cmake ninja-build"
            ) from None
    # cmake itself: what pip puts into bin is a script that needs its Python package.
    return os.pathsep.join([str(home / "cmake" / "data" / "bin"), str(home / "bin"), own])
