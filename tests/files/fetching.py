"""What the tests of fetching share."""

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable

from common import places
from common.rig import ROOT, Rig

DRAFTER = "drafter-2b-q4_0.gguf"
TOKEN = "hf_a-token-nobody-may-see"


def in_folder() -> set[str]:
    return {path.name for path in places.models().iterdir() if not path.name.startswith(".")}


def drafter() -> bytes:
    return (places.models() / DRAFTER).read_bytes()


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def script(
    line: str, of: Rig, before: Callable[[], None] | None = None, stderr: int = subprocess.PIPE
) -> "subprocess.Popen[str]":
    """Start a script of the project as make does; `line` is its name and what follows the rig."""
    name, *words = line.split()
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / f"{name}.py"), str(of.folder), *words],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        preexec_fn=before,
    )


def until(true: Callable[[], bool]) -> None:
    """Wait; the limit of every test ends it."""
    while not true():
        time.sleep(0.02)
