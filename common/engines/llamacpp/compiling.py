"""Compiling: llama.cpp's source made into the programs of an engine, with what CUDA adds to it."""

import json
import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from common import places
from common.digest import sha256
from common.engines.llamacpp import build_tools, embedded, jobs, page, source, toolkit
from common.engines.llamacpp.source import Source
from common.engines.llamacpp.toolkit import Toolkit
from common.errors import RigError, disk_says
from common.rig import Rig

PROGRAMS = ("llama-server", "llama-quantize")
# Only what these programs need; CMake fetches nothing, the chat page is put into its folder.
CMAKE = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
CMAKE_CUDA = (
    "-DGGML_CUDA=ON",
    "-DGGML_CUDA_NCCL=OFF",  # for several cards at once; a rig is one
    # Where it is built there may be no libcuda.so.1; it comes with the driver at run time.
    "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined",
    # CUDA's own libraries lie beside the programs, wherever these are put.
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    "-DCMAKE_INSTALL_RPATH=$ORIGIN/lib",
)
CUDA_CORE_MINUTES = 55
"""compiling for one architecture: minutes times cores (75-real on 2 cores of an EPYC took 26)"""
BUILD_GIB = 3.0
"""the disk that the source, its objects and the programs take"""
Progress = Callable[[int, int], None]


def cmake_flags(rig: Rig) -> list[str]:
    """The CMake settings for a rig's engine."""
    flags = list(CMAKE)
    if rig.backend == "cuda":
        flags += CMAKE_CUDA
        if rig.cuda_architectures:
            flags.append(f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(rig.cuda_architectures)}")
    return flags + list(rig.cmake_extra)


def programs(
    rig: Rig,
    origin: Source,
    home: Path,
    say: Callable[[str], None],
    progress: Progress,
    chat: Callable[[], Path],
) -> str:
    """Compile a fetched source and put the programs, their libraries and engine.json into `home`.

    `chat` gives the folder of the chat page. Returns why the engine has none; empty if it has.
    What an earlier call has compiled of it is kept. Raises RigError.
    """
    check_tools(rig)
    tree = places.cache() / "builds" / home.name
    with disk_says(tree, source.DISK):
        if not (tree / "build.ninja").is_file():  # what goes on has most of it
            check_room(rig)
        cuda = _toolkit(rig, say)
        tree.mkdir(parents=True, exist_ok=True)
        has, lacks = _page(chat)
        page.put(has, tree)
        took = _compile(rig, origin, cuda, tree, say, progress)
        if has and not page.is_in(tree):
            has, lacks = None, "this llama.cpp did not take it"
        info = {
            **_about(rig, origin, cuda, tree),
            "page": page.digest(has) if has else None,
            "compile": took,
        }
        _install(cuda, tree, home, info)
        if has:  # else it is kept, so that trying again costs a page and no compile
            shutil.rmtree(tree)
    return lacks


def _page(chat: Callable[[], Path]) -> tuple[Path | None, str]:
    """The chat page, or why there is none: an engine serves without."""
    try:
        return chat(), ""
    except RigError as error:
        return None, str(error)


def check_tools(rig: Rig) -> None:
    """Raise RigError if this host lacks a compiler the rig's engine needs, and none can be had."""
    if not build_tools.compiler():
        raise RigError(
            "no C++ compiler found", fix="install one, on Debian or Ubuntu: apt install g++"
        )
    if rig.backend == "cuda":
        version = _cuda_version(rig)
        toolkit.check_architectures(version, rig.cuda_architectures, None)
        toolkit.check(version)


def room_gib(rig: Rig) -> float:
    """The disk that building the rig's engine takes, with what is fetched for it."""
    if rig.backend != "cuda" or (rig.cuda_version and toolkit.find(rig.cuda_version)):
        return BUILD_GIB
    return BUILD_GIB + toolkit.DISK_GIB


def free_gib() -> float:
    """The room on the cache's disk."""
    place = places.cache()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free / 2**30


def check_room(rig: Rig) -> None:
    """Raise RigError if the cache's disk is too small to build the rig's engine."""
    free, need = free_gib(), room_gib(rig)
    if free < need:
        raise RigError(
            f"{free:.1f} GiB free at {places.cache()}, {need:.1f} needed to build the engine",
            fix=source.DISK,
        )


def _cuda_version(rig: Rig) -> str:
    if rig.cuda_version is None:
        raise RigError(f"{rig.name}: BACKEND=cuda needs CUDA_VERSION, such as 13.4.1")
    return rig.cuda_version


def _toolkit(rig: Rig, say: Callable[[str], None]) -> Toolkit | None:
    """The CUDA toolkit to build with; None for an engine without a card."""
    if rig.backend != "cuda":
        return None
    version = _cuda_version(rig)
    found = toolkit.get(version, say)
    toolkit.check_architectures(version, rig.cuda_architectures, found)
    return found


def _environment(cuda: Toolkit | None) -> dict[str, str]:
    own = cuda.environment() if cuda else {}
    return {**os.environ, **own, "PATH": build_tools.search_path()}


def _compile(
    rig: Rig,
    origin: Source,
    cuda: Toolkit | None,
    tree: Path,
    say: Callable[[str], None],
    progress: Progress,
) -> dict[str, Any]:
    """Returns what it took: wall and processor seconds, how many compilers at once, whether an
    earlier call had begun it."""
    began, used = time.monotonic(), _processor_seconds()
    continued = (tree / "build.ninja").is_file()
    version = []  # a git tree knows its own
    if origin.kind == "release":
        version = ["-DLLAMA_BUILD_NUMBER=" + source.number(origin)]
    count = jobs.jobs(rig.backend)
    configure = ["cmake", "-S", str(origin.folder), "-B", str(tree), "-G", "Ninja"]
    say(
        f"compiling llama.cpp for {rig.backend}, {count} at once{_estimate(rig, count)}; "
        f"the log is {tree / 'build.log'}"
    )
    with (tree / "build.log").open("w") as log:
        steps = [
            [*configure, *cmake_flags(rig), *version],
            ["cmake", "--build", str(tree), "--target", *PROGRAMS, "-j", str(count)],
        ]
        for step in steps:
            _run_logged(step, _environment(cuda), log, progress)
    return {
        "seconds": round(time.monotonic() - began, 1),
        "processor_seconds": round(_processor_seconds() - used, 1),
        "jobs": count,
        "continued": continued,
    }


def _processor_seconds() -> float:
    """Of all programs this process has started and seen end."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _estimate(rig: Rig, count: int) -> str:
    if rig.backend != "cuda":
        return ""
    if not rig.cuda_architectures or "all" in "".join(rig.cuda_architectures):
        return ", for many kinds of card, which takes hours"
    minutes = CUDA_CORE_MINUTES * len(rig.cuda_architectures) / count
    return f", about {minutes:.0f} minutes by an estimate (a few files take most of it)"


def _run_logged(
    step: list[str], environment: dict[str, str], log: TextIO, progress: Progress
) -> None:
    tail: list[str] = []
    with subprocess.Popen(
        step,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            tail = [*tail[-14:], line.rstrip()]
            if match := re.match(r"\[(\d+)/(\d+)\]", line):
                progress(int(match[1]), int(match[2]))
    if process.returncode != 0:
        last = "\n  ".join(tail)
        raise RigError(
            f"building llama.cpp failed; its last lines are:\n  {last}\n"
            f"The whole log is {log.name}; run the same command again to continue."
        )


def _about(rig: Rig, origin: Source, cuda: Toolkit | None, tree: Path) -> dict[str, Any]:
    """What engine.json says of the build in `tree`."""
    server = tree / "bin" / "llama-server"
    return {
        "source": {
            "kind": origin.kind,
            "version": origin.version,
            "origin": origin.origin,
            "sha256": origin.sha256,
            "commit": source.commit_of(origin),
        },
        "backend": rig.backend,
        "cuda_version": rig.cuda_version if cuda else None,
        "nvcc": cuda.release() if cuda else None,
        "machine_code": _code(cuda, server) if cuda else None,
        "cmake": cmake_flags(rig),
        "compiler": _cache_value(tree, "CMAKE_CXX_COMPILER"),
        "version": version(server, toolkit.with_stub(cuda) if cuda else None),
        "server_sha256": sha256(server),
        "built": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _code(cuda: Toolkit, server: Path) -> list[str] | None:
    """For which cards the program is; None where the toolkit has no cuobjdump to say so."""
    try:
        return cuda.code(server)
    except RigError:
        return None


def _install(cuda: Toolkit | None, tree: Path, home: Path, info: dict[str, Any]) -> None:
    part = home.with_name(home.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for program in PROGRAMS:
        shutil.copy2(tree / "bin" / program, part / program)
    if cuda is not None:
        _put_libraries(part / "llama-server", cuda)
    (part / embedded.INFO).write_text(json.dumps(info, indent=2) + "\n")
    part.rename(home)


def _put_libraries(server: Path, cuda: Toolkit) -> None:
    """Put the CUDA libraries a program needs into the folder lib beside it."""
    place = server.with_name("lib")
    place.mkdir()
    for library in toolkit.libraries(server, cuda):
        try:
            (place / library.name).hardlink_to(library.resolve())
        except OSError:  # on another disk
            shutil.copy2(library, place / library.name)
    if (licence := cuda.licence()) is not None:
        shutil.copy2(licence, place / "LICENSE-NVIDIA.txt")


def version(server: Path, environment: dict[str, str] | None = None) -> list[str]:
    """What the program says of itself: build number and compiler."""
    line = [str(server), "--version"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RigError(f"{server} was built but does not run here: {error}") from None
    return version_lines(done.stdout + done.stderr)


def version_lines(text: str) -> list[str]:
    """Of what llama-server --version prints, the lines with build number and compiler."""
    return [line for line in text.splitlines() if line.startswith(("version", "built"))]


def _cache_value(tree: Path, name: str) -> str | None:
    text = (tree / "CMakeCache.txt").read_text()
    match = re.search(rf"^{name}:[A-Z]+=(.*)$", text, re.MULTILINE)
    return match[1] if match else None
