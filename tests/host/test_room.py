"""Room: what a control group's limit leaves, and what a rig is refused for."""

from pathlib import Path

import psutil
import pytest

from common.errors import RigError
from common.host import room
from common.rig import Rig

MIB = 2**20


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for /sys/fs/cgroup; this process is in /outer/inner."""
    top = tmp_path / "cgroup"
    (top / "outer" / "inner").mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("0::/outer/inner\n")
    monkeypatch.setattr(room, "CGROUPS", top)
    monkeypatch.setattr(room, "OWN_CGROUP", own)
    return top


def limit(folder: Path, most: str, used: int, cache: int) -> None:
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cache}\n")


def test_the_smallest_limit_above_counts(cgroups: Path) -> None:
    host = psutil.virtual_memory().total / MIB
    assert room.free_mib()[1] == "this host's memory"
    assert 0 < room.free_mib()[0] <= host
    limit(cgroups / "outer" / "inner", "max", 0, 0)
    assert room.free_mib()[1] == "this host's memory"
    limit(cgroups / "outer", str(100 * MIB), 70 * MIB, 20 * MIB)
    assert room.free_mib() == (50.0, "the container's or service's memory limit")
    limit(cgroups / "outer" / "inner", str(40 * MIB), 39 * MIB, 0)
    assert room.free_mib()[0] == 1.0


def test_a_limit_of_version_1_and_a_path_of_the_host(cgroups: Path) -> None:
    room.OWN_CGROUP.write_text("4:cpu,cpuacct:/x\n3:memory:/docker/abc\n1:name=systemd:/x\n")
    memory = cgroups / "memory"
    memory.mkdir()
    (memory / "memory.limit_in_bytes").write_text(f"{30 * MIB}")
    (memory / "memory.usage_in_bytes").write_text(f"{20 * MIB}")
    (memory / "memory.stat").write_text(f"total_inactive_file {5 * MIB}\n")
    assert room.free_mib()[0] == 15.0
    room.OWN_CGROUP.unlink()
    assert room.free_mib()[1] == "this host's memory"


def test_a_context_beyond_the_host_is_refused_with_the_arithmetic(
    tiny: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "free_mib", lambda: (900.0, "this host's memory"))
    room.check(tiny)
    words = r"CTX_SIZE=10000000 needs about [\d,]+ MiB \(weights .*KV cache .*\), 900 are left of"
    with pytest.raises(RigError, match=words) as caught:
        room.check(tiny.variant({"CTX_SIZE": "10000000", "PARALLEL": "256"}))
    assert "lower CTX_SIZE or PARALLEL" in caught.value.fix


def test_a_containers_limit_refuses_what_the_host_would_take(tiny: Rig, cgroups: Path) -> None:
    room.check(tiny)
    limit(cgroups / "outer", str(MIB), MIB // 2, 0)
    with pytest.raises(RigError, match="are left of the container's or service's memory limit"):
        room.check(tiny)


def test_more_threads_than_processors_are_refused(tiny: Rig) -> None:
    here = room.processors()
    room.check(tiny.variant({"THREADS": str(here)}))
    with pytest.raises(RigError, match=f"THREADS={here + 1}, but {here} processors"):
        room.check(tiny.variant({"THREADS": str(here + 1)}))


def test_a_file_that_is_not_there_is_not_refused_here(tiny: Rig) -> None:
    room.check(tiny.variant({"MODEL": "no-tiny-q4_0.gguf", "CTX_SIZE": "10000000"}))
