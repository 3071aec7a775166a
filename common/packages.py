"""Packages: the project's .venv, installed from a lock file with its hashes.

Needs the standard library only: it runs before anything is installed.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import atomic, pip, uv
from common.digest import sha256
from common.errors import RigError
from common.lock import only_one

LOCKS = {"runtime": "requirements.lock", "dev": "requirements-dev.lock"}
"""What each set-up installs; dev holds all of runtime."""
UV_LOCK = "requirements-uv.lock"
RECORD = ".ready"
"""In .venv, written last: what was installed. Without it the folder is made anew."""
Record = dict[str, Any]


def ensure(root: Path, kind: str) -> None:
    """Make .venv hold what the lock of this kind says. Does nothing if it does already.

    Raises RigError if the packages cannot be had.
    """
    venv = (root / ".venv").resolve()
    try:
        if _is_current(root, kind, venv, _read(venv)):
            return
        # Two makes at once must not install into one folder.
        waiting = "another make is installing the Python packages; waiting for it"
        with only_one(venv.with_name(venv.name + ".lock"), lambda: _say(waiting)):
            record = _read(venv)
            if not _is_current(root, kind, venv, record):
                _install(root, kind, venv, record)
    except OSError as error:
        raise RigError(
            f"{venv} cannot be made: {error}", fix="make room, or mend its permissions"
        ) from None


def _read(venv: Path) -> Record:
    try:
        record = json.loads((venv / RECORD).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    whole = isinstance(record, dict) and isinstance(record.get("locks"), dict)
    return record if whole and "python" in record else {}


def _is_current(root: Path, kind: str, venv: Path, record: Record) -> bool:
    lock = LOCKS[kind]
    asked = bool(os.environ.get("BASE_PYTHON"))
    return (
        _is_whole(venv, record)
        and (record["python"] == sys.implementation.cache_tag or not asked)
        and record["locks"].get(lock) == sha256(root / lock)
    )


def _is_whole(venv: Path, record: Record) -> bool:
    """Whether it was installed to its end, here, and its Python is still on this host."""
    return record.get("venv") == str(venv) and (venv / "bin" / "python").exists()


def _install(root: Path, kind: str, venv: Path, record: Record) -> None:
    _say("installing Python packages into .venv (once, half a minute)")
    (venv / RECORD).unlink(missing_ok=True)  # from here on it is not whole
    same = _is_whole(venv, record) and record["python"] == sys.implementation.cache_tag
    if not same and venv.exists():
        shutil.rmtree(venv)
    lock = root / LOCKS[kind]
    try:
        _by_uv(venv, lock, root / UV_LOCK)
    except uv.UvError as error:
        _say(f"{error}; pip installs instead (about a minute)")
        _by_pip(venv, lock)
    for packages in venv.glob("lib/*/site-packages"):
        (packages / "gemma-rigs.pth").write_text(f"{root}\n")
    # dev holds all of runtime, so that runtime has nothing to do after it.
    held = [LOCKS["runtime"], lock.name] if kind == "dev" else [lock.name]
    _write(
        venv,
        {
            "venv": str(venv),
            "base": _base(),
            "python": sys.implementation.cache_tag,
            "locks": {name: sha256(root / name) for name in held},
        },
    )


def _by_uv(venv: Path, lock: Path, uv_lock: Path) -> None:
    """Install with uv; a host without it gets it into the cache, by the pip of the new .venv."""
    program = uv.find(uv_lock)
    python = venv / "bin" / "python"
    if not python.exists():
        if program is None:
            _standard_venv(venv)
        else:
            uv.run(program, "venv", "--no-project", "--python", _base(), str(venv))
    if program is None:
        program = uv.bring(python, uv_lock)
    requirements = ["--require-hashes", "--no-deps", "-r", str(lock)]
    if sys.dont_write_bytecode:  # else the first start compiles once for all
        requirements.append("--compile-bytecode")
    uv.run(program, "pip", "install", "--python", str(python), *requirements)


def _by_pip(venv: Path, lock: Path) -> None:
    if not (venv / "bin" / "pip").exists():  # uv made it
        shutil.rmtree(venv, ignore_errors=True)
        _standard_venv(venv)
    try:
        pip.run(venv / "bin" / "python", "install", "--require-hashes", "-r", str(lock))
    except RigError as error:
        raise RigError(
            f"the Python packages cannot be installed ({error}); see that this host reaches its "
            "package index, which pip's own settings name"
        ) from None


def _standard_venv(venv: Path) -> None:
    command = [_base(), "-m", "venv", str(venv)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        said = done.stdout + done.stderr
        shutil.rmtree(venv, ignore_errors=True)
        if "ensurepip" in said:
            raise RigError(
                "cannot make .venv: this Python has no ensurepip; "
                "on Debian or Ubuntu: apt install python3-venv"
            )
        raise RigError(f"cannot make .venv: {pip.last_error(said)}")


def _base() -> str:
    """The interpreter itself, also where this one runs in an environment or behind links: .venv
    must not change when a link comes to point to another version."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _write(venv: Path, record: Record) -> None:
    atomic.write(venv / RECORD, json.dumps(record, indent=2) + "\n")


def _say(text: str) -> None:
    print(f"set-up: {text}", flush=True)
