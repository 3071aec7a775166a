"""Timed: a program that has until it is late, and is then ended in order, with all it started."""

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

LOOK_S = 0.2
LAST = 50
"""lines that are kept to say why it failed"""
# Ctrl-C first: a run then keeps its journal, and its server is stopped in order.
WAYS_TO_END = ((signal.SIGINT, 30.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0))
READ_S = 5.0


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    late: bool
    """whether it was ended because its time was over"""
    lines: Sequence[str]
    """the last it said"""

    @property
    def reason(self) -> str:
        """The error it closed with, or its last line that says something; one line."""
        said = [line.strip() for line in self.lines if line.strip()]
        errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
        others = [line for line in said if not line.startswith("make: ")]
        found = (errors or others or said or [f"exit code {self.code}"])[-1]
        return found.rpartition("; ")[0] or found if found.endswith(":") else found


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    late: Callable[[], bool],
    say: Callable[[str], object],
) -> Ended:
    """Run it in `folder`, tell each line it says, and end it as soon as it is `late`.

    It is ended too when this process is told to end, before that goes on. Raises OSError if it
    cannot be started.
    """
    last: deque[str] = deque(maxlen=LAST)
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(
            target=_tell, args=(process.stdout, last, say), name="output", daemon=True
        )
        reader.start()
        try:
            ended = _wait(process, late)
        finally:
            _end(process)
            reader.join(READ_S)
    return Ended(process.returncode, not ended, tuple(last))


def _wait(process: "subprocess.Popen[str]", late: Callable[[], bool]) -> bool:
    """False if it was late."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
            return True
        if late():
            return False


def _end(process: "subprocess.Popen[str]") -> None:
    """End its process group, if it runs. A second Ctrl-C meanwhile goes on to the next way."""
    for number, patience in WAYS_TO_END:
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(patience)


def _tell(output: TextIO, last: "deque[str]", say: Callable[[str], object]) -> None:
    """Read to the end whatever becomes of who listens: else the program would wait for ever."""
    for line in output:
        last.append(line.rstrip("\n"))
        with contextlib.suppress(OSError, ValueError):  # gone, or closed by now
            say(last[-1])
