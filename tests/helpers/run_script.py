"""Runs a script's body as its own process would be run, without the cost of one.

Every script also runs as a process in some test, as make starts it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from typing import NamedTuple

import pytest

from common.rig import ROOT, Rig
from scripts import _cli


class Done(NamedTuple):
    code: int
    out: str
    err: str


def run_script(body: Callable[[Sequence[str]], int | None], arguments: Sequence[str]) -> int:
    """The exit code; what it prints goes where the caller's output goes."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as caught:
            _cli.main(lambda: body(arguments))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def words_of(name: str) -> list[str]:
    """What measure.py is told beside the rig, for a measurement; nothing for another script."""
    return _cli.command(name, "")[3:]


def measure(name: str, rig: Rig, *words: str, **environment: str) -> Done:
    """Run the script of this name for a rig, with these words and variables."""
    words = (*words_of(name), *words)
    script = import_module(f"scripts.{'measure' if words_of(name) else name}")
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for key, value in environment.items():
            patch.setenv(key, value)
        patch.setattr(sys, "argv", [f"{name}.py", str(rig.folder), *words])
        code = run_script(lambda _words: script.body(), ())
    return Done(code, out.getvalue(), err.getvalue())


def begin(name: str, rig: Rig, *words: str, **environment: str) -> "subprocess.Popen[str]":
    """Start it as a process, as make does."""
    return subprocess.Popen(
        [*_cli.command(name, str(rig.folder)), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def measure_as_process(name: str, rig: Rig, *words: str, **environment: str) -> Done:
    process = begin(name, rig, *words, **environment)
    out, err = process.communicate()
    return Done(process.returncode, out, err)
