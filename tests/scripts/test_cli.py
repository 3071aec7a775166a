"""What every script does with what the system refuses: one line, no traceback."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from common.rig import ROOT, Rig
from tests.conftest import Run
from tests.helpers.limits import HANG_S


def fails(error: OSError) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/x"), "/x: Read-only file system"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied"),
        (FileNotFoundError("gone"), "gone"),
    ],
)
def test_an_error_of_the_system_is_one_line(tiny: Rig, run: Run, error: OSError, line: str) -> None:
    advice = "see that it is there, that this user may use it, and that the disk has room"
    assert run(fails(error), tiny) == (1, "", f"error: {line}; {advice}\n")


BODY = """
import sys; from scripts import _cli
def body():
    _cli.say("text")
    print("more", file=sys.stderr)
    file = open(sys.argv[1], "w"); print("kept", file=file)
    assert file.fileno() > 2
_cli.main(body)
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_files(closed: str, tmp_path: object) -> None:
    """A daemon's: what is opened must not take their place, and nothing is lost."""
    out = f"{tmp_path}/out"
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" "$2" {closed}', sys.executable, BODY, out],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    with open(out) as file:  # noqa: PTH123 (a test of plain files)
        assert file.read() == "kept\n"


@pytest.mark.parametrize("full", [">/dev/full", "2>/dev/full", ">/dev/full 2>/dev/full"])
def test_a_full_output(full: str) -> None:
    code = 'import sys; from scripts import _cli; _cli.main(lambda: _cli.say("text"))'
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {full}', sys.executable, code],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    wanted = {
        ">/dev/full": (
            0,
            "standard output cannot be written (No space left on device); going on\n",
        ),
        "2>/dev/full": (0, ""),
        ">/dev/full 2>/dev/full": (0, ""),
    }
    assert (done.returncode, done.stderr) == wanted[full]


LOST = """
import signal, sys, time
from scripts import _cli
class Ends:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))
        sum(range(1000))
def body():
    Ends()
    time.sleep(600)
_cli.main(body)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_comes_in_a_finalizer_is_not_lost(number: int, code: int) -> None:
    line = [sys.executable, "-c", LOST, str(int(number))]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S / 2)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
