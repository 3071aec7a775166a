"""What every script shares: the rig argument, one line per error, exit codes."""

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from common import rig
from common.errors import RigError
from common.rig import ROOT, Rig


def say(text: str) -> None:
    """A line on standard output. Where that is full, nothing that runs is ended for it."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        with contextlib.suppress(OSError):
            print(f"standard output cannot be written ({why}); going on", file=sys.stderr)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


def parser(text: str | None) -> argparse.ArgumentParser:
    """A parser with the rig folder (or its name) as first argument."""
    found = argparse.ArgumentParser(description=text)
    found.add_argument("rig", metavar="RIG", help="the rig's folder, or its name")
    return found


def load_rig(name: str) -> Rig:
    """The rig at this path, or of this name in the project's folder. Raises RigError."""
    folder = Path(name)
    try:
        here = folder.is_dir() and folder.absolute()
    except FileNotFoundError:
        raise RigError("the folder you are in has been deleted", fix="cd to another") from None
    return rig.load(here or ROOT / name)


def command(verb: str, *rig: str) -> list[str]:
    """The program line of a script, or of a measurement, by its make target."""
    folder = Path(__file__).parent
    if (folder / f"{verb}.py").is_file():
        return [sys.executable, str(folder / f"{verb}.py"), *rig]
    return [sys.executable, str(folder / "measure.py"), *rig, verb]


def main(body: Callable[[], int | None]) -> None:
    """Run a script's body: errors in one line and exit 1, Ctrl-C 130, SIGTERM 143.

    What the system refuses (a full disk, a folder that is gone) is an error of the user's host,
    and one line too.
    """
    _open_standard_files()
    signal.signal(signal.SIGTERM, _terminated)
    if sys.unraisablehook is sys.__unraisablehook__:  # else it is pytest's
        sys.unraisablehook = _unraisable
    try:
        code = body() or 0
    except RigError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        code = 141
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 (nothing left to write to)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"error: {where}{error.strerror or error}; see that it is there, that this user may "
            "use it, and that the disk has room",
            file=sys.stderr,
        )
        code = 1
        with contextlib.suppress(OSError):  # else Python says once more that it cannot write
            sys.stdout.flush()
    sys.exit(code)


def _open_standard_files() -> None:
    """A daemon may have closed them, and the next file opened would take their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, so this one
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)


def _unraisable(told: "sys.UnraisableHookArgs") -> None:
    """Ctrl-C or SIGTERM that came while a finalizer ran, where Python drops what is raised, is sent
    again in a moment: it must not be lost."""
    again = {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}.get(told.exc_type)
    if again is None:
        sys.__unraisablehook__(told)
        return
    timer = threading.Timer(0.05, os.kill, (os.getpid(), again))
    timer.daemon = True
    timer.start()


def flag(name: str) -> bool:
    """An on/off setting from the environment, such as QUICK=1."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        raise RigError(f"{name}={value}: expected 0 or 1")
    return value == "1"
