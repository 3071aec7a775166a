"""Engine: which llama-server runs, what it was built from, and how to build it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from common import places
from common.digest import sha256
from common.engines.llamacpp import build_tools, embedded, jobs, page, source
from common.engines.llamacpp.source import Source
from common.errors import RigError, disk_says
from common.rig import Rig

CONTAINER = Path("/opt/llama.cpp/bin/llama-server")
OTHER = Path("/opt/llama.cpp/other/llama-server")
"""in a container of `make builds`: the second engine (scripts/both.Dockerfile)"""
PROGRAMS = ("llama-server", "llama-quantize", "llama-bench")
INFO = embedded.INFO
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
# A build container has no libcuda.so.1; it comes with the driver at run time.
CMAKE_CUDA = ("-DGGML_CUDA=ON", "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined")
Progress = Callable[[int, int], None]


class OddRecordError(RigError):
    """An engine is there, but what was written down of it is damaged."""


@dataclass(frozen=True)
class Engine:
    """One llama-server."""

    server: Path
    info: dict[str, Any]
    """engine.json; for a foreign LLAMA_SERVER only what can be asked of the file itself"""

    @property
    def quantize(self) -> Path:
        return self.server.with_name("llama-quantize")

    @property
    def embedded(self) -> bool:
        """Whether it came out of a package instead of being compiled for this project."""
        return (self.info.get("source") or {}).get("kind") == "embedded"

    @property
    def libraries(self) -> Path | None:
        """The CUDA libraries it was linked with, where they were brought along with it."""
        found = self.server.with_name("lib")
        return found if found.is_dir() else None

    def is_build(self, rig: Rig) -> bool:
        """Whether it is the rig's kind of engine, with its flags and CUDA version."""
        if self.embedded:
            return rig.engine == "embedded"
        cuda = rig.cuda_version if rig.backend == "cuda" else None
        return (self.info.get("cmake"), self.info.get("cuda_version")) == (cmake_flags(rig), cuda)

    @property
    def title(self) -> str:
        """The engine in words, for reports."""
        origin = self.info.get("source")
        if not origin:
            return f"{self.server} given by LLAMA_SERVER (build unknown)"
        if self.embedded:
            release = origin["version"].split(".")[-1]
            package = f"{origin['origin']} {origin['version']}"
            return f"llama.cpp b{release}, embedded ({package}), {self.info['backend']}"
        names = {"git": "commit", "local": "local tree"}
        name = names.get(origin["kind"], f"source release {origin['origin']}")
        return f"llama.cpp {name} {origin['version']}, {self.info['backend']}"


def cmake_flags(rig: Rig) -> list[str]:
    """The CMake settings for a rig's engine."""
    flags = list(CMAKE)
    if rig.backend == "cuda":
        flags += CMAKE_CUDA
        if rig.cuda_architectures:
            flags.append(f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(rig.cuda_architectures)}")
    return flags + list(rig.cmake_extra)


def folder(rig: Rig, origin: Source) -> Path:
    """Where the engine built from `origin` lies: one folder per source and set of flags."""
    key = hashlib.sha256(json.dumps([origin.kind, origin.version, cmake_flags(rig)]).encode())
    name = f"{origin.kind}-{origin.version}-{rig.backend}-{key.hexdigest()[:10]}"
    return places.cache() / "engines" / name


def find(rig: Rig) -> Engine:
    """The engine to use: LLAMA_SERVER, else the container's, else by ENGINE the embedded one or the
    one that `make engine` built.

    Raises RigError if there is none.
    """
    own = os.environ.get("LLAMA_SERVER")
    if own:
        return _foreign(Path(own))
    if OTHER.is_file() and (other := _read(OTHER)).is_build(rig):
        return other
    if CONTAINER.is_file():
        return _read(CONTAINER)
    if rig.engine == "embedded":
        homes = [embedded.folder()]
    else:
        homes = [folder(rig, origin) for origin in source.wanted(rig)]
    for home in homes:
        if (home / "llama-server").is_file():
            return _read(home / "llama-server")
    raise RigError(f"no engine for {rig.name} yet; get it with: make engine RIG={rig.name}")


def full_commit(rig: Rig) -> str | None:
    """All digits of the rig's commit, where an engine was built of it and tpu.env has fewer."""
    pinned = rig.llama_cpp_commit
    if not pinned or len(pinned) == 40:
        return None
    try:
        built = (find(rig).info.get("source") or {}).get("commit")
    except RigError:
        return None
    return built if isinstance(built, str) and built.startswith(pinned) else None


def _read(server: Path) -> Engine:
    """The engine with what was written down of it. Raises RigError if that is no such record."""
    path = server.with_name(INFO)
    problem = "it is no file" if path.exists() and not path.is_file() else ""
    info: Any = None
    try:
        info = info if problem else json.loads(path.read_text(encoding="utf-8"))
        problem = problem or _oddity(info)
    except OSError as error:
        problem = error.strerror or str(error)
    except (ValueError, RecursionError):
        problem = "not JSON"
    if problem:
        ours = server.is_relative_to(places.cache())
        raise OddRecordError(
            f"{path} does not say what engine lies beside it ({problem})",
            fix=f"delete the folder {server.parent}, then: make engine"
            if ours
            else "mend it, or delete it",
        )
    return Engine(server, info)


def _oddity(info: object) -> str:
    """What is odd in the record of an engine; empty if it is as `build` and `embedded` write it."""
    if not isinstance(info, dict):
        return "not a record"
    origin = info.get("source")
    if not isinstance(origin, dict) or not isinstance(info.get("backend"), str):
        return "source or backend is missing"
    odd = [key for key in ("kind", "version", "origin") if not isinstance(origin.get(key), str)]
    cmake = info.get("cmake")
    if not isinstance(cmake, list) or not all(isinstance(flag, str) for flag in cmake):
        odd.append("cmake")
    return f"its {odd[0]} makes no sense" if odd else ""


def _foreign(server: Path) -> Engine:
    if not (server.is_file() and os.access(server, os.X_OK)):
        raise RigError(f"LLAMA_SERVER={server} is not a program; unset it to use the built engine")
    if server.with_name(INFO).is_file():
        return _read(server)
    with disk_says(server, "unset LLAMA_SERVER to use the built engine"):
        return Engine(server, {"server_sha256": sha256(server), "given_by": "LLAMA_SERVER"})


def build(rig: Rig, say: Callable[[str], None], progress: Progress) -> Engine:
    """Build the rig's engine into the cache (fetch it, if it is embedded), or find it there.

    `say` gets one line per stage, `progress` the finished and total compile steps.
    Raises RigError if no source can be had, a tool is missing or the build fails.
    """
    if rig.engine == "embedded":
        with disk_says(places.cache(), source.DISK):
            return _read(embedded.install(say))
    chosen = source.first(rig, say, lambda origin: (folder(rig, origin) / INFO).is_file())
    home = folder(rig, chosen)

    def chat() -> Path:
        return page.build(chosen.folder, source.number(chosen), say)

    return build_from(rig, chosen, say, progress, chat, f"delete {home}, then: make engine")


def build_from(
    rig: Rig,
    fetched: Source,
    say: Callable[[str], None],
    progress: Progress,
    chat: Callable[[], Path],
    again: str,
) -> Engine:
    """Like `build`, from one source that has been fetched.

    `chat` gives the folder of the chat page. If it raises RigError the engine has none, and `say`
    gets the reason and how to try again.
    """
    home = folder(rig, fetched)
    if not home.is_dir():
        check_tools(rig)
        tree = places.cache() / "builds" / home.name
        with disk_says(tree, source.DISK):
            tree.mkdir(parents=True, exist_ok=True)
            has, lacks = _page(chat)
            page.put(has, tree)
            _compile(rig, fetched, tree, say, progress)
            if has and not page.is_in(tree):
                has, lacks = None, "this llama.cpp did not take it"
            _install(rig, fetched, tree, home, has)
            shutil.rmtree(tree)
        if has is None:
            say(f"built without the chat page: {lacks}; to try again {again}")
    return _read(home / "llama-server")


def _page(chat: Callable[[], Path]) -> tuple[Path | None, str]:
    """The chat page, or why there is none: an engine serves without."""
    try:
        return chat(), ""
    except RigError as error:
        return None, str(error)


def check_tools(rig: Rig) -> None:
    """Raise RigError if this host lacks a compiler the rig's engine needs."""
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        raise RigError(
            "no C++ compiler found", fix="install one, on Debian or Ubuntu: apt install g++"
        )
    if rig.backend == "cuda" and shutil.which("nvcc") is None:
        raise RigError(
            "nvcc is missing, so a CUDA engine cannot be built on this host",
            fix="install the CUDA toolkit, or use the container",
        )


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": build_tools.search_path()}


def _compile(
    rig: Rig, origin: Source, tree: Path, say: Callable[[str], None], progress: Progress
) -> None:
    version = []  # a git tree knows its own
    if origin.kind == "release":
        version = ["-DLLAMA_BUILD_NUMBER=" + source.number(origin)]
    count = str(jobs.jobs(rig.backend))
    configure = ["cmake", "-S", str(origin.folder), "-B", str(tree), "-G", "Ninja"]
    say(f"compiling llama.cpp for {rig.backend}, {count} at once; the log is {tree / 'build.log'}")
    with (tree / "build.log").open("w") as log:
        steps = [
            [*configure, *cmake_flags(rig), *version],
            ["cmake", "--build", str(tree), "--target", *PROGRAMS, "-j", count],
        ]
        for step in steps:
            _run_logged(step, log, progress)


def _run_logged(step: list[str], log: TextIO, progress: Progress) -> None:
    tail: list[str] = []
    with subprocess.Popen(
        step,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment(),
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


def _install(rig: Rig, origin: Source, tree: Path, home: Path, has: Path | None) -> None:
    part = home.with_name(home.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for program in PROGRAMS:
        shutil.copy2(tree / "bin" / program, part / program)
    server = part / "llama-server"
    info = {
        "source": {
            "kind": origin.kind,
            "version": origin.version,
            "origin": origin.origin,
            "sha256": origin.sha256,
            "commit": source.commit_of(origin),
        },
        "backend": rig.backend,
        "cuda_version": rig.cuda_version if rig.backend == "cuda" else None,
        "cmake": cmake_flags(rig),
        "compiler": _cache_value(tree, "CMAKE_CXX_COMPILER"),
        "page": page.digest(has) if has else None,
        "version": version(server),
        "server_sha256": sha256(server),
        "built": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    (part / INFO).write_text(json.dumps(info, indent=2) + "\n")
    part.rename(home)


def version(server: Path) -> list[str]:
    """What the program says of itself: build number and compiler."""
    try:
        done = subprocess.run(
            [str(server), "--version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RigError(f"{server} was built but does not run here: {error}") from None
    lines = (done.stdout + done.stderr).splitlines()
    return [line for line in lines if line.startswith(("version", "built"))]


def _cache_value(tree: Path, name: str) -> str | None:
    text = (tree / "CMakeCache.txt").read_text()
    match = re.search(rf"^{name}:[A-Z]+=(.*)$", text, re.MULTILINE)
    return match[1] if match else None
