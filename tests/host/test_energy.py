"""RAPL, through files as the kernel has them."""

import threading
from pathlib import Path

import pytest

from common.host import card, energy
from common.host.energy import Packages

RANGE = 262_143_328_850


def domain(root: Path, folder: str, name: str, value: int) -> Path:
    path = root / folder
    path.mkdir()
    for file, text in (("name", name), ("energy_uj", value), ("max_energy_range_uj", RANGE)):
        (path / file).write_text(f"{text}\n")
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two packages, and what must not be counted beside them."""
    domain(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    domain(tmp_path, "intel-rapl:1", "package-1-die-0", 5_000_000)
    domain(tmp_path, "intel-rapl:0:0", "core", 0)
    domain(tmp_path, "intel-rapl:2", "psys", 0)
    domain(tmp_path, "intel-rapl-mmio:0", "package-0", 0)
    (tmp_path / "intel-rapl").mkdir()
    return tmp_path


def move(root: Path, **values: int) -> None:
    for folder in root.glob("*:*"):
        key = folder.name.replace("-", "_").replace(":", "_")
        (folder / "energy_uj").write_text(f"{values.get(key, 77_000_000_000)}\n")


def test_packages_are_added_up_and_nothing_else(root: Path) -> None:
    found = Packages(root)
    assert found.read() == 0
    move(root, intel_rapl_0=3_500_000, intel_rapl_1=6_000_000)
    assert found.read() == 3.5
    assert found.read() == 3.5


def test_a_counter_that_wraps_round_goes_on(root: Path) -> None:
    move(root, intel_rapl_0=RANGE - 1_000_000, intel_rapl_1=0)
    found = Packages(root)
    assert found.read() == 0
    for _ in range(3):
        move(root, intel_rapl_0=2_000_000, intel_rapl_1=0)
        found.read()
        move(root, intel_rapl_0=RANGE - 1_000_000, intel_rapl_1=0)
        found.read()
    assert found.read() == pytest.approx(3 * RANGE / 1e6)


def test_what_cannot_be_read_is_absent(root: Path, tmp_path: Path) -> None:
    found = Packages(root)
    assert found.read() == 0
    (root / "intel-rapl:1" / "energy_uj").unlink()
    assert found.read() is None
    assert Packages(root).read() is None
    assert Packages(tmp_path / "nowhere").read() is None


def test_a_long_trial_is_read_meanwhile(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a counter that goes round twice while a trial lasts is seen to do so."""
    monkeypatch.setattr(energy, "POWERCAP", root)
    monkeypatch.setattr(card, "WATCH_S", 0.01)
    assert card.energy_source(None) == "RAPL package"
    read, several = Packages.read, threading.Semaphore(0)

    def counted(self: Packages) -> float | None:
        several.release()
        return read(self)

    monkeypatch.setattr(Packages, "read", counted)
    with card.Telemetry(None, tmp_path / "none", "RAPL package"):
        for _ in range(3):
            assert several.acquire(timeout=10)
    assert not (tmp_path / "none").exists()


def test_a_host_without_packages_has_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    assert card.energy_source(None) is None
    with card.Telemetry(None, tmp_path / "none") as telemetry:
        assert telemetry.drawn(telemetry.joules(), 0, 1) is None
