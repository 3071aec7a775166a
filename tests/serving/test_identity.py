"""A process is told from every other, whatever its name, and an ended one is none."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.serving import identity


def test_the_same_process_and_another_of_its_id() -> None:
    found = identity.stat(os.getpid())
    assert found is not None
    assert identity.is_same(os.getpid(), found.ticks)
    assert not identity.is_same(os.getpid(), found.ticks + 1)
    assert found.group == os.getpgid(0)
    assert 0 < identity.age_s(found.ticks) < time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_later_process_began_later() -> None:
    mine = identity.stat(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as later:
        found = identity.stat(later.pid)
        later.kill()
    assert mine is not None
    assert found is not None
    assert found.ticks > mine.ticks
    assert identity.stat(later.pid) is None


def test_a_name_with_brackets_and_blanks(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "60"], start_new_session=True) as odd:
        found = identity.stat(odd.pid)
        assert identity.group(odd.pid) == [odd.pid]
        odd.kill()
    assert found is not None
    assert found.group == odd.pid


def test_what_has_ended_but_was_not_waited_for_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], start_new_session=True) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{child.pid}").exists()
        assert identity.stat(child.pid) is None
        assert identity.group(child.pid) == []


@pytest.mark.parametrize("pid", [-1, 0, 2**40])
def test_an_id_that_none_has(pid: int) -> None:
    assert identity.stat(pid) is None
    assert identity.line(pid) == identity.environment(pid) == []


def test_a_group_holds_what_its_leader_started() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; wait"], start_new_session=True, stdout=subprocess.PIPE
    ) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        assert sorted(identity.group(leader.pid)) == sorted([leader.pid, child])
        leader.kill()
        leader.wait()
        assert identity.group(leader.pid) == [child]
        os.kill(child, 9)
