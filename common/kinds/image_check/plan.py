"""Looks into a rig's image as it was built: sizes, libraries, machine code, what it says."""

import io
import re
import shlex
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from docker import DockerClient
from docker.models.images import Image

from common.engines.llamacpp import compiling
from common.engines.llamacpp.toolkit import Toolkit, loaded
from common.errors import RigError
from common.measure.journal import Packed, Part, Said
from common.rig import Rig
from common.unpack import unpack

SERVER = "/opt/llama.cpp/bin/llama-server"
LIBRARIES = "/opt/llama.cpp/bin/lib"
DRIVER = "libcuda.so.1"
"""the one library that is not in the image: the driver's own, of the host"""
MOST_COMPRESSED = 1_000_000_000
TOOLS = ("gcc", "g++", "c++", "clang", "nvcc", "ptxas", "cmake", "ninja", "git", "pip", "node")
"""what only a build needs"""
# Headers that Python's packages bring are theirs to keep; one of CUDA or of the C library would be
# left of a build.
HEADERS = (
    "find / -xdev \\( -name '*.h' -o -name '*.cuh' \\) 2>/dev/null | grep -cv ^/opt/venv/ || true"
)
LEVEL = 6  # as Docker compresses a layer


def look(
    client: DockerClient, name: str, rig: Rig, toolkit: Toolkit, say: Callable[[str], None]
) -> Packed:
    """Everything that is recorded of a built image but how long it took.

    Raises RigError if the image is not there or holds no engine.
    """
    image = client.images.get(name)
    say("asking what it says and what it is linked with")
    ldd = _said(client, image, "linked", ["ldd", SERVER])["text"]
    linked = loaded(ldd)
    if not linked:
        raise RigError(f"{SERVER} of the image is no program: {ldd[:200]}")
    say("weighing it compressed (a minute)")
    compressed = _compressed(image.save(chunk_size=1 << 20))
    with tempfile.TemporaryDirectory() as folder:
        code = toolkit.code(copied(client, image, SERVER, folder))
        beside = copied(client, image, LIBRARIES, folder)
        libraries = [_part(path) for path in sorted(beside.glob("*.so*"))]
    return {
        "failed": None,
        "architectures": list(rig.cuda_architectures),
        "image": str(image.id),
        "bytes": int(image.attrs["Size"]),
        "compressed_bytes": compressed,
        "layers": [
            {"made_by": _short(str(step["CreatedBy"])), "bytes": int(step["Size"])}
            for step in reversed(image.history())
            if step["Size"]
        ],
        "libraries": libraries,
        "linked": sorted(linked),
        "missing": sorted(name for name, path in linked.items() if path is None),
        "machine_code": code,
        "says": _version(client, image, toolkit),
        "tools": _said(client, image, "tools", ["sh", "-c", _which(TOOLS)])["text"].split(),
        "headers": int(_said(client, image, "headers", ["sh", "-c", HEADERS])["text"] or 0),
        "user": str(image.attrs["Config"]["User"]),
        "labels": dict(image.attrs["Config"]["Labels"] or {}),
        "without_driver": _said(client, image, "serve", None, ["serve", rig.name]),
    }


def problems(found: Packed) -> list[str]:
    """What is not as it should be, a line each."""
    wanted = {code for text in found["architectures"] for code in _codes(text)}
    told = found["without_driver"]
    said = [
        (
            found["missing"] != [DRIVER],
            f"not found by the loader: {', '.join(found['missing']) or 'nothing'}, where only "
            f"the driver's {DRIVER} should be",
        ),
        (
            set(found["machine_code"]) != wanted,
            f"machine code for {', '.join(found['machine_code']) or 'nothing'}",
        ),
        (not found["says"], "llama-server does not say its version"),
        (bool(found["tools"]), f"left of the build: {', '.join(found['tools'])}"),
        (found["headers"] > 0, f"left of the build: {found['headers']} headers"),
        (found["user"].partition(":")[0] in ("", "0", "root"), "it runs as root"),
        (
            told["code"] == 0 or len(told["text"].splitlines()) != 1,
            f"without a driver it ends with {told['code']}, saying {told['text']!r}",
        ),
        (
            found["compressed_bytes"] > MOST_COMPRESSED,
            f"{found['compressed_bytes'] / 1e9:.2f} GB compressed, over the goal",
        ),
    ]
    return [text for wrong, text in said if wrong]


def _codes(architecture: str) -> list[str]:
    """What one of CMAKE_CUDA_ARCHITECTURES makes: machine code, code for the driver to compile, or
    both."""
    number, _, kind = architecture.partition("-")
    return [
        f"{code}_{number}"
        for code, without in (("sm", "virtual"), ("compute", "real"))
        if kind != without
    ]


def _said(
    client: DockerClient,
    image: Image,
    case: str,
    entrypoint: list[str] | None,
    command: list[str] | None = None,
    environment: dict[str, str] | None = None,
    volumes: dict[str, dict[str, str]] | None = None,
) -> Said:
    """What a program in a container of the image says, and how it ends; no network, no card."""
    container = client.containers.create(
        image,
        command,
        entrypoint=entrypoint,
        network_mode="none",
        environment=environment,
        volumes=volumes,
    )
    try:
        container.start()
        code = int(container.wait(timeout=600)["StatusCode"])
        text = container.logs().decode(errors="replace").strip()
    finally:
        container.remove(force=True)
    return {"case": case, "code": code, "text": text}


def _version(client: DockerClient, image: Image, toolkit: Toolkit) -> list[str]:
    """What the server says of itself, with a stand-in for the driver's library."""
    if toolkit.stubs is None:
        return []
    said = _said(
        client,
        image,
        "version",
        [SERVER, "--version"],
        environment={"LD_LIBRARY_PATH": "/stubs"},
        volumes={str(toolkit.stubs): {"bind": "/stubs", "mode": "ro"}},
    )
    return compiling.version_lines(said["text"])


def _compressed(pieces: Iterable[bytes]) -> int:
    """Bytes of a stream after gzip."""
    packer = zlib.compressobj(LEVEL, wbits=31)
    return sum(len(packer.compress(piece)) for piece in pieces) + len(packer.flush())


def copied(client: DockerClient, image: Image, path: str, folder: str | Path) -> Path:
    """A file or folder of the image, copied into `folder`."""
    container = client.containers.create(image, network_mode="none")
    try:
        pieces, _about = container.get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            unpack(archive, Path(folder))
    finally:
        container.remove(force=True)
    return Path(folder) / Path(path).name


def _part(path: Path) -> Part:
    with path.open("rb") as file:
        compressed = _compressed(iter(lambda: file.read(1 << 20), b""))
    return {"name": path.name, "bytes": path.stat().st_size, "compressed_bytes": compressed}


def _which(tools: Iterable[str]) -> str:
    return f"for tool in {shlex.join(tools)}; do command -v $tool; done; true"


def _short(made_by: str) -> str:
    """The step of the Dockerfile that made a layer, without how it was run."""
    text = re.sub(r"^(RUN )?(\|\d+ .*? )?/bin/sh -c (#\(nop\) )?", r"\1", " ".join(made_by.split()))
    return text.removesuffix(" # buildkit")[:90]
