"""Converter: llama.cpp's own convert_hf_to_gguf.py, at the pinned source, in an environment of its
own (torch for the CPU, transformers), made only when asked for."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import atomic, pip, places
from common.engines.llamacpp import source
from common.engines.llamacpp.source import Source
from common.errors import RigError, disk_says
from common.rig import ROOT, Rig

LOCK = ROOT / "requirements-converter.lock"
TORCH = "torch==2.13.0+cpu"
"""Not in the lock: the package index has it only with 2 GB of CUDA libraries, which converting does
not need. The wheel for the CPU alone lies where llama.cpp's own requirements say."""
LLAMA_REQUIREMENTS = "requirements/requirements-convert_hf_to_gguf.txt"
WHEELS = ("--only-binary", ":all:")  # pip would run what an archive of sources brings along
Say = Callable[[str], None]


@dataclass(frozen=True)
class Converter:
    """The converter's script and the Python that runs it."""

    origin: Source
    python: Path

    def convert(self, snapshot: Path, out: Path) -> None:
        """Convert a checkpoint folder to Q8_0. Raises RigError with the converter's last lines.

        `out` gets its name only when it is whole.
        """
        command = [str(self.python), str(self.origin.folder / "convert_hf_to_gguf.py")]
        command += [str(snapshot), "--outtype", "q8_0", "--outfile"]
        # Its own gguf package knows architectures that the released one does not.
        environment = {**os.environ, "PYTHONPATH": str(self.origin.folder / "gguf-py")}
        with atomic.part_of(out) as part:
            done = subprocess.run(
                [*command, str(part)],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                env=environment,
            )
            if done.returncode != 0 or not part.is_file():
                last = "\n  ".join((done.stdout + done.stderr).splitlines()[-12:])
                raise RigError(
                    f"llama.cpp's converter could not read {snapshot}; its last lines are:\n"
                    f"  {last}"
                )


def prepare(rig: Rig, say: Say) -> Converter:
    """The converter for a rig: source and environment, made if need be."""
    origin = source.first(rig, say)
    with disk_says(places.cache(), source.DISK):
        return Converter(origin, environment(origin, say))


def environment(origin: Source, say: Say) -> Path:
    """The Python of the converter's environment in the cache, installed from its lock.

    One environment per lock and Python version. Raises RigError if a package cannot be had.
    """
    key = hashlib.sha256(f"{TORCH} {sys.version_info[:2]}".encode() + LOCK.read_bytes())
    home = places.cache() / "converter" / key.hexdigest()[:10]
    python, ready = home / "bin" / "python", home / ".ready"
    if ready.is_file():
        return python
    say("installing the converter's packages (torch for the CPU, 200 MB; once, minutes)")
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(home)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        _run([*pip, "--no-deps", *WHEELS, TORCH])
    except RigError:
        index = _torch_index(origin)
        if index is None:
            raise
        _run([*pip, "--no-deps", *WHEELS, "--index-url", index, TORCH])
    _run([*pip, "--require-hashes", "-r", str(LOCK)])
    ready.touch()
    return python


def _torch_index(origin: Source) -> str | None:
    """Where llama.cpp's own requirements take torch for the CPU from."""
    path = origin.folder / LLAMA_REQUIREMENTS
    if not path.is_file():
        return None
    match = re.search(r"--extra-index-url\s+(\S+)", path.read_text())
    return match[1] if match else None


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        reason = pip.last_error(done.stderr)
        raise RigError(f"the converter's environment cannot be made: {reason}")
