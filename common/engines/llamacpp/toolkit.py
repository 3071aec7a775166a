"""Toolkit: CUDA's compiler and libraries, of this host or brought into the cache, to build with.

The package index carries NVIDIA's toolkit from CUDA 13 on; of CUDA 12 it has only parts (ptxas and
libnvvm, without nvcc, cudafe++, fatbinary and nvlink). Needs the standard library only: engines are
built in an image without packages.
"""

import mmap
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common import index, tool_folder
from common.engines.llamacpp import build_tools
from common.errors import RigError
from common.rig import ROOT

PACKAGE = "cuda-toolkit"
FIRST_WHOLE = 13
"""the first major version of which the package index has a compiler"""
DOWNLOAD_GB, DISK_GIB = 0.6, 1.8
"""of the toolkit: what is fetched, and the room it takes with what pip keeps of that"""
OLDEST = {12: 50, 13: 75}
"""the oldest architecture each major version compiles for (release notes of CUDA 12.0 and 13.0)"""
LAST = {12: "12.9.1", 11: "11.8.0"}
"""the last release of a major version"""
STUB = "libcuda.so"


@dataclass(frozen=True)
class Toolkit:
    """One CUDA toolkit."""

    nvcc: Path
    home: Path | None
    """its folder with bin, include and lib64, where it was brought; CMake finds a host's own"""

    def environment(self) -> dict[str, str]:
        """How CMake is told of it."""
        own = {"CUDACXX": str(self.nvcc)}
        return own if self.home is None else {**own, "CUDAToolkit_ROOT": str(self.home)}

    @property
    def stubs(self) -> Path | None:
        """Where a libcuda.so lies that holds names only; the driver's own is not in a toolkit."""
        return None if self.home is None else self.home / "lib" / "stubs"

    def release(self) -> str:
        """The compiler's version, such as 13.4.59. Raises RigError if it does not say."""
        return _release(self.nvcc)[1]

    def architectures(self) -> set[int]:
        """What it compiles for, such as {75, 80, 86}. Raises RigError if it does not say."""
        listed = _said([str(self.nvcc), "--list-gpu-arch"])
        return {int(number) for number in re.findall(r"compute_(\d+)", listed)}

    def licence(self) -> Path | None:
        """NVIDIA's terms, which go with its libraries."""
        if self.home is None:
            found = [self.nvcc.resolve().parents[1] / "EULA.txt"]
        else:
            found = sorted(self.home.parents[1].glob("nvidia_cublas-*/licenses/License.txt"))
        return next(filter(Path.is_file, found), None)

    def code(self, program: Path) -> list[str]:
        """The machine code (sm_75) and intermediate code (compute_75) in a program, for which cards
        it is. Raises RigError if the toolkit's cuobjdump is missing or does not say."""
        tool = str(self.nvcc.resolve().with_name("cuobjdump"))
        found = {
            f"{kind}_{number}"
            for option, kind in (("--list-elf", "sm"), ("--list-ptx", "compute"))
            for number in re.findall(r"\bsm_(\d+[af]?)\.", _said([tool, option, str(program)]))
        }
        return sorted(found)


def find(version: str) -> Toolkit | None:
    """The toolkit of that CUDA version on PATH, else the one in the cache, else None."""
    own = shutil.which("nvcc")
    if own is not None:
        try:
            if _release(Path(own))[0] == ".".join(version.split(".")[:2]):
                return Toolkit(Path(own), None)
        except RigError:
            pass  # one that does not run is none
    return _brought(version)


def _brought(version: str) -> Toolkit | None:
    """The toolkit in the cache."""
    lock = _lock(version)
    home = _inside(tool_folder.place("cuda", lock)) if lock.is_file() else None
    return None if home is None else Toolkit(home / "bin" / "nvcc", home)


def get(version: str, say: Callable[[str], None], own: bool = True) -> Toolkit:
    """Like `find`, brought from the package index where this host has none; with `own` False also
    where it has one.

    Raises RigError if the index has no such toolkit, or it cannot be had.
    """
    found = find(version) if own else _brought(version)
    if found is None:
        _check_known(version)
        lock = _lock(version)
        home = tool_folder.place("cuda", lock)
        say(
            f"fetching CUDA {version}'s compiler and libraries from the package index "
            f"({DOWNLOAD_GB:g} GB, once; minutes on a slow line)"
        )
        try:
            tool_folder.bring(home, lock, Path(sys.executable), _complete)
        except RigError as error:
            raise RigError(
                f"CUDA {version} cannot be had from the package index: {error.what}",
                fix="run the same command again (what came whole is kept), or install the "
                f"CUDA toolkit {version} on this host",
            ) from None
        found = _brought(version)
        assert found is not None
    return found


def check(version: str) -> None:
    """Raise RigError if there is no toolkit of that CUDA version here and none to be brought."""
    if find(version) is None:
        _check_known(version)


def _check_known(version: str) -> None:
    """Raise RigError if none can be brought."""
    if int(version.split(".")[0]) < FIRST_WHOLE:
        raise RigError(
            f"the package index has no compiler for CUDA {version}: before {FIRST_WHOLE}.0 it "
            "lacks nvcc, cudafe++, fatbinary and nvlink",
            fix=f"install the CUDA toolkit {version} on this host, or use the container "
            "(RUNNER=docker), which takes them from NVIDIA's image",
        )
    if _lock(version).is_file():
        return
    locks = sorted(path.stem.rpartition("-")[2] for path in ROOT.glob(_lock("*").name))
    try:
        known = [text.removesuffix(".0") if text.count(".") > 2 else text for text in _versions()]
        there = f"The package index has {', '.join(known)}"
    except RigError as error:
        known, there = [], f"What the package index has cannot be seen: {error}"
    fix = f"set CUDA_VERSION={' or '.join(locks)}, of which a lock file is here"
    if version in known:
        fix += f", or write one for {version}: make lock CUDA_VERSION={version}"
    raise RigError(f"CUDA_VERSION={version} has no lock file here", fix=f"{fix}. {there}")


def check_architectures(version: str, wanted: tuple[str, ...], toolkit: Toolkit | None) -> None:
    """Raise RigError if that CUDA version compiles for an architecture no longer, or not yet.

    `wanted` is as in CMAKE_CUDA_ARCHITECTURES: 75-real, 61-virtual, 86; words such as native pass.
    """
    oldest = OLDEST.get(int(version.split(".")[0]))
    can = toolkit.architectures() if toolkit else None
    for text in wanted:
        number = int(found[1]) if (found := re.match(r"(\d+)", text)) else None
        if number is None or (can and number in can):
            continue
        if oldest is not None and number < oldest:
            last = max((major for major, least in OLDEST.items() if least <= number), default=11)
            fix = f"the last that does is CUDA {LAST[last]}: set CUDA_VERSION={LAST[last]}"
        elif can:
            fix = f"it does for {', '.join(map(str, sorted(can)))}"
        else:
            continue
        raise RigError(f"CUDA {version} does not compile for {text} (CUDA_ARCHITECTURES)", fix=fix)


def libraries(program: Path, toolkit: Toolkit) -> list[Path]:
    """The toolkit's libraries a program needs: linked, or named in those to be opened at run time.

    Not the driver's libcuda.so.1. Raises RigError if a linked one cannot be found.
    """
    found: dict[str, Path] = {}
    missing = []
    for name, path in _linked(program, toolkit).items():
        if path is None and not name.startswith("libcuda.so"):
            missing.append(name)
        elif path is not None and re.match(r"lib(cudart|cublas|cublasLt|nccl)\.so", name):
            found[name] = path
    if missing:
        raise RigError(f"{program} is linked with {', '.join(missing)}, which is not here")
    todo = list(found.values())
    while todo:
        path = todo.pop()
        for name in _named(path):
            beside = path.with_name(name)
            if name not in found and beside.is_file():
                found[name] = beside
                todo.append(beside)
    return [found[name] for name in sorted(found)]


def loaded(text: str) -> dict[str, Path | None]:
    """Each library that ldd's text names, and where the loader finds it; None: nowhere."""
    found = re.findall(r"^\s*(\S+) => (not found|/\S+)", text, re.MULTILINE)
    return {name: None if path == "not found" else Path(path) for name, path in found}


def with_stub(toolkit: Toolkit) -> dict[str, str]:
    """The environment in which a CUDA program starts without a driver, to say its version."""
    home = toolkit.home or toolkit.nvcc.resolve().parents[1]
    own = [home / "lib64", home / "lib", *([toolkit.stubs] if toolkit.stubs else [])]
    paths = [*(str(path) for path in own if path.is_dir()), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(path for path in paths if path)}


def _lock(version: str) -> Path:
    return ROOT / f"requirements-cuda-{version}.lock"


def _versions() -> list[str]:
    found = {tuple(map(int, text.split("."))) for text in index.versions(PACKAGE)}
    whole = sorted(numbers for numbers in found if numbers[0] >= FIRST_WHOLE)
    return [".".join(map(str, numbers)) for numbers in whole]


def _inside(folder: Path) -> Path | None:
    """The toolkit in a folder that pip filled: nvidia/cu13 of CUDA 13."""
    return next((path.parent.parent for path in folder.glob("nvidia/cu*/bin/nvcc")), None)


def _complete(folder: Path) -> None:
    """What the packages lack of a toolkit as compilers look for it: lib64, names without a version,
    and a stand-in for the driver's library to link with. Raises RigError if it cannot be made."""
    home = _inside(folder)
    if home is None:
        raise RigError("its packages hold no nvcc")
    (home / "lib64").symlink_to("lib")
    for library in (home / "lib").glob("lib*.so.*"):
        plain = library.with_name(library.name.partition(".so.")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(library.name)
    stubs = home / "lib" / "stubs"
    stubs.mkdir()
    header = (home / "include" / "cuda.h").read_text(encoding="utf-8", errors="replace")
    names = sorted(set(re.findall(r"\bcu[A-Z]\w*", header)))
    source = stubs / "libcuda.cpp"
    # 999 is CUDA_ERROR_UNKNOWN: a program that runs with it finds no card.
    body = "".join(f"int {name}() {{ return 999; }}\n" for name in names)
    source.write_text(f'extern "C" {{\n{body}}}\n', encoding="utf-8")
    compiler = build_tools.compiler() or ["c++"]
    line = [*compiler, "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", str(source)]
    _said([*line, "-o", str(stubs / STUB)])
    (stubs / f"{STUB}.1").symlink_to(STUB)


def _release(nvcc: Path) -> tuple[str, str]:
    """CUDA's version, such as 13.4, and the compiler's own, such as 13.4.59."""
    found = re.search(r"release (\d+\.\d+), V([\d.]+)", _said([str(nvcc), "--version"]))
    if found is None:
        raise RigError(f"{nvcc} does not say its version")
    return found[1], found[2]


def _linked(program: Path, toolkit: Toolkit) -> dict[str, Path | None]:
    """Each library a program is linked with, and where the loader finds it."""
    return loaded(_said(["ldd", str(program)], with_stub(toolkit)))


def _named(library: Path) -> set[str]:
    """Names of libraries that stand in a library's bytes as it hands them to dlopen."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = re.findall(rb"\0(lib[\w+-]+\.so\.[\d.]+)(?=\0)", data)
    return {name.decode() for name in found}


def _said(line: list[str], environment: dict[str, str] | None = None) -> str:
    """What a program prints. Raises RigError with its last words if it fails."""
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, errors="replace", env=environment, timeout=600
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RigError(f"{line[0]} does not run ({error})") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RigError(f"{Path(line[0]).name} failed: {last}")
    return done.stdout
