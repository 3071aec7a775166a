"""The doctor: each lack is named with its fix, and the exit code says whether the rig can run."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import docker
import pytest

from common import rig
from common.engines.llamacpp import memory
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.host import card, doctor, room
from common.host.doctor import Check
from common.rig import ROOT, Rig


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_the_tiny_rig_can_run_here(tiny: Rig, fake: Callable[..., Engine]) -> None:
    fake()
    checks = doctor.examine(tiny, "host")
    assert [check for check in checks if check.state == "lacks"] == []
    assert all(check.fix for check in checks if check.state != "ok" and check.name != "memory")


def test_a_busy_port_and_a_missing_file(
    tiny: Rig, fake: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    fake()
    monkeypatch.setenv("MODELS_DIR", str(tmp_path))
    with socket.socket() as other:
        other.bind((tiny.host, tiny.port))
        other.listen()
        found = by_name(doctor.examine(tiny, "host"))
    assert found["port"].state == "lacks"
    assert "make stop" in found["port"].fix
    assert found["model"].state == "note"
    assert found["model"].fix.endswith(" model")
    assert found["drafter"].fix.endswith(" draft")


def test_the_exit_code(tiny: Rig, fake: Callable[..., Engine]) -> None:
    fake()
    script = [sys.executable, str(ROOT / "scripts" / "doctor.py")]
    done = subprocess.run([*script, str(tiny.folder)], capture_output=True, text=True)
    assert done.returncode == 0
    assert "can run on this host" in done.stdout
    with socket.socket() as other:
        other.bind((tiny.host, tiny.port))
        other.listen()
        done = subprocess.run([*script, str(tiny.folder)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot run on this host yet: port" in done.stdout


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("('Connection aborted.', PermissionError(13, 'Permission denied'))", "usermod"),
        ("('Connection aborted.', FileNotFoundError(2, 'No such file'))", "systemctl start docker"),
    ],
)
def test_docker_problems(tiny: Rig, monkeypatch: pytest.MonkeyPatch, error: str, fix: str) -> None:
    def fail(**_: object) -> None:
        raise docker.errors.DockerException(error)

    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/docker")
    monkeypatch.setattr(docker, "from_env", fail)
    check = by_name(doctor.examine(tiny, "docker"))["docker"]
    assert check.state == "lacks"
    assert fix in check.fix


def with_card(
    monkeypatch: pytest.MonkeyPatch, free_mib: float, version: str, cuda: str, desktop: bool
) -> None:
    small = SimpleNamespace(
        name="NVIDIA GeForce RTX 3050",
        describe=lambda: {"driver": version, "cuda": cuda, "compute_capability": (8, 6)},
        memory_mib=lambda: (free_mib, 8192.0),
        processes=lambda: [(1, desktop)],
    )
    monkeypatch.setattr(card, "find", lambda _rig: small)


def test_an_old_driver_little_memory_and_a_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = rig.load(ROOT / "local-llamacpp-3050oem-2b-q4_0", environ={})
    monkeypatch.setattr(memory, "need_mib", lambda _rig: 3000.0)
    with_card(monkeypatch, 2000, "570.86.15", "12.8", desktop=True)
    found = by_name(doctor.examine(loaded, "docker"))
    assert found["card memory"].state == "lacks"
    assert "about 3,000 needed" in found["card memory"].text
    assert found["driver"].state == "lacks"
    assert "CUDA_VERSION" in found["driver"].fix
    assert found["desktop"].state == "note"
    with_card(monkeypatch, 7000, "580.65.06", "13.0", desktop=False)
    found = by_name(doctor.examine(loaded, "docker"))
    assert (found["card memory"].state, found["driver"].state) == ("ok", "ok")
    assert "desktop" not in found


def test_no_card_is_named_with_the_fix() -> None:
    loaded = rig.load(ROOT / "local-llamacpp-1650ti-2b-q4_0", environ={})
    try:
        card.cards()
    except RigError:
        found = by_name(doctor.examine(loaded, "host"))
        assert found["card"].state == "lacks"
        assert "GTX_1650_Ti" in found["card"].fix
    else:
        pytest.skip("this host has a card")


def cache_of(of: Rig) -> float:
    need = memory.need(of)
    assert need is not None
    return need.cache


def test_the_kv_cache_by_hand(tiny: Rig) -> None:
    """Two full layers of 8192 cells, two sliding ones; 32 + 32 f16 values a cell.

    Without PARALLEL llama-server makes 4 slots that share a cache: 4 windows of 512 and a batch.
    """
    cells = 2 * 8192 + 2 * (4 * 512 + 512)
    assert cache_of(tiny) == cells * 64 * 2 / 2**20
    one = tiny.variant({"PARALLEL": "1"})
    assert cache_of(one) == 2 * (8192 + 1024) * 128 / 2**20
    half = tiny.variant({"CACHE_TYPE_K": "q8_0", "CACHE_TYPE_V": "q8_0"})
    assert cache_of(half) == pytest.approx(cells * 64 * 34 / 32 / 2**20)


def test_an_engine_that_lets_web_pages_in_is_a_lack(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\nprintf -- '--metrics\\n--slots, --no-slots\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("LLAMA_SERVER", str(program))
    found = by_name(doctor.examine(tiny, "host"))["engine"]
    assert found.state == "lacks"
    assert "has no --cors-origins" in found.text
    program.write_text("#!/bin/sh\nprintf -- '--metrics\\n--cors-origins X\\n--no-slots\\n'\n")
    assert by_name(doctor.examine(tiny, "host"))["engine"].state == "ok"


def test_what_the_environment_says_is_said(
    tiny: Rig, fake: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake()
    monkeypatch.setenv("HOST", "my-laptop")
    monkeypatch.setenv("THREADS", str(room.processors() + 1))
    checks = doctor.examine(rig.load(tiny.folder), "host")
    texts = [check.text for check in checks if check.name == "settings"]
    assert "THREADS=" in texts[0]
    assert texts[1] == "in the environment, but no address, so not taken: HOST=my-laptop"
    assert by_name(checks)["threads"].state == "lacks"


def test_a_port_at_an_ipv6_address(tiny: Rig, fake: Callable[..., Engine]) -> None:
    fake()
    found = by_name(doctor.examine(tiny.variant({"HOST": "::1"}), "host"))["port"]
    assert found.state == "ok"
    assert f"http://[::1]:{tiny.port}" in found.text
