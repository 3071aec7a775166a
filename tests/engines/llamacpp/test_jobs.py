"""How many compilers run at once: usable cores and memory, also in a container."""

import os
from pathlib import Path

import pytest

from common.engines.llamacpp import jobs

GIB = 2**30


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight usable cores of 64 and 20 GiB free; files to lay more beside."""
    monkeypatch.setattr(jobs, "PROC", tmp_path / "proc")
    monkeypatch.setattr(jobs, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "cgroup" / "box").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/box\n")
    free(tmp_path, 20 * GIB)
    return tmp_path


def free(host: Path, size: int) -> None:
    text = f"MemTotal: 99999999 kB\nMemAvailable:   {size // 1024} kB\n"
    (host / "proc" / "meminfo").write_text(text)


def test_usable_cores_not_all(host: Path) -> None:
    assert host.is_dir()
    assert jobs.jobs("cpu") == jobs.jobs("cuda") == 8


def test_no_more_than_memory_has_room_for(host: Path) -> None:
    free(host, 5 * GIB)
    assert (jobs.jobs("cpu"), jobs.jobs("cuda")) == (5, 2)
    free(host, GIB // 2)
    assert jobs.jobs("cpu") == 1


def test_a_containers_limits_count(host: Path) -> None:
    inmost, outer = host / "cgroup" / "box", host / "cgroup"
    (inmost / "cpu.max").write_text("max 100000\n")
    (outer / "cpu.max").write_text("350000 100000\n")
    assert jobs.usable_cores() == 3
    (inmost / "memory.max").write_text(f"{6 * GIB}\n")
    (inmost / "memory.current").write_text(f"{4 * GIB}\n")
    (outer / "memory.max").write_text("max\n")
    assert jobs.usable_memory() == 2 * GIB
    assert jobs.jobs("cpu") == 2
    (inmost / "memory.stat").write_text(f"anon 5\ninactive_file {GIB}\n")
    assert jobs.usable_memory() == 3 * GIB


@pytest.mark.parametrize("text", ["", "nonsense", "max", "1 0"])
def test_odd_files_of_the_kernel_say_nothing(host: Path, text: str) -> None:
    for name in ("cpu.max", "memory.max", "memory.current"):
        (host / "cgroup" / "box" / name).write_text(text)
    (host / "proc" / "meminfo").write_text(text)
    assert jobs.usable_memory() is None
    assert jobs.jobs("cuda") == 8
