"""Timed: a program's lines, how it ended, and that none of it is left."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from common.rigs import timed
from common.rigs.timed import Ended


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "LOOK_S", 0.02)
    ways = tuple((number, 0.5) for number, _patience in timed.WAYS_TO_END)
    monkeypatch.setattr(timed, "WAYS_TO_END", ways)


def python(text: str, folder: Path, said: list[str], late: bool = False) -> Ended:
    """Run a program; it is late, if so, once it has said something."""
    return timed.run(
        [sys.executable, "-c", text],
        folder,
        os.environ,
        lambda: late and bool(said),
        said.append,
    )


def test_its_lines_are_told_and_the_error_is_its_reason(tmp_path: Path) -> None:
    said: list[str] = []
    text = "print('one'); print('error: no room'); print('make: *** Error 2'); raise SystemExit(2)"
    ended = python(text, tmp_path, said)
    assert said == ["one", "error: no room", "make: *** Error 2"]
    assert (ended.code, ended.late, ended.reason) == (2, False, "no room")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), "exit code 3"),
        (("", "killed", "make: *** x"), "killed"),
        (("make: *** x", ""), "make: *** x"),
        (("error: a", "error: b", "c"), "b"),
        (("error: it failed; its last lines are:", "  a", "  b"), "it failed"),
        (("error: it failed:", "  a"), "it failed:"),
    ],
)
def test_a_reason_is_one_line_whatever_was_said(lines: tuple[str, ...], reason: str) -> None:
    assert Ended(3, False, lines).reason == reason


def test_a_late_one_is_ended_in_order(tmp_path: Path) -> None:
    said: list[str] = []
    text = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
print("begun", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("in order")
    raise SystemExit(130)
"""
    ended = python(text, tmp_path, said, late=True)
    assert (ended.code, ended.late) == (130, True)
    assert said == ["begun", "in order"]


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    said: list[str] = []
    text = """
import signal, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print("begun", flush=True)
time.sleep(60)
"""
    ended = python(text, tmp_path, said, late=True)
    assert (ended.code, ended.late) == (-signal.SIGKILL, True)


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    said: list[str] = []
    text = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
other = "import signal, time; signal.signal(2, signal.default_int_handler); time.sleep(60)"
print(subprocess.Popen([sys.executable, "-c", other]).pid, flush=True)
time.sleep(60)
"""
    python(text, tmp_path, said, late=True)
    stat = Path(f"/proc/{said[0]}/stat")
    for _ in range(200):  # it may be waited for by nobody here, or take a moment
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    else:
        pytest.fail("it still runs")


def test_a_listener_that_breaks_does_not_hold_it_up(tmp_path: Path) -> None:
    def broken(_line: str) -> None:
        raise BrokenPipeError

    text = "print('x' * 100 + '\\n' * 200_000)"
    ended = timed.run([sys.executable, "-c", text], tmp_path, os.environ, lambda: False, broken)
    assert ended.code == 0


def test_what_cannot_be_started_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing"):
        timed.run(["./nothing"], tmp_path, os.environ, lambda: False, lambda _: None)
