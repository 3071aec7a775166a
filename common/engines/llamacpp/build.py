"""Engine: which llama-server runs, what it was built from, and how to build it."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import places
from common.digest import sha256
from common.engines.llamacpp import compiling, embedded, page, source
from common.engines.llamacpp.compiling import Progress, cmake_flags
from common.engines.llamacpp.source import Source
from common.errors import RigError, disk_says
from common.rig import Rig

CONTAINER = Path("/opt/llama.cpp/bin/llama-server")
OTHER = Path("/opt/llama.cpp/other/llama-server")
"""in a container of `make builds`: the second engine (scripts/both.Dockerfile)"""
INFO = embedded.INFO


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
        """The CUDA libraries beside it that it was linked with."""
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


def folder(rig: Rig, origin: Source) -> Path:
    """Where the engine built from `origin` lies: one folder per source, set of flags and CUDA."""
    parts: list[object] = [origin.kind, origin.version, cmake_flags(rig)]
    if rig.backend == "cuda":
        parts.append(rig.cuda_version)
    key = hashlib.sha256(json.dumps(parts).encode())
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


def is_built(rig: Rig) -> bool:
    """Whether `find` finds one."""
    try:
        find(rig)
    except RigError:
        return False
    return True


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
        lacks = compiling.programs(rig, fetched, home, say, progress, chat)
        if lacks:
            say(f"built without the chat page: {lacks}; to try again {again}")
    return _read(home / "llama-server")
