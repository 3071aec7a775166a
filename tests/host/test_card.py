"""The card, through a stand-in for NVML."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from common import rig
from common.engines.llamacpp import serve
from common.errors import RigError
from common.host import card
from common.rig import ROOT, Rig
from scripts import _preparing


class Stand:
    """What the stand-in card says; a test changes it."""

    name = "NVIDIA GeForce RTX 3050"
    temperature = 40
    throttle: int | None = 0
    power: int | None = 90_000
    energy_mj: int | None = 5_000_000
    lost: int | None = None


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    state = Stand()

    def supported(value: int | None) -> int:
        if value is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value

    def unless_lost(call: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*arguments: Any) -> Any:
            if state.lost:
                raise pynvml.NVMLError(state.lost)
            return call(*arguments)

        return answer

    values: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _h: state.name,
        "nvmlDeviceGetTemperature": lambda _h, _kind: state.temperature,
        "nvmlDeviceGetClockInfo": lambda _h, _kind: 1500,
        "nvmlDeviceGetPowerUsage": lambda _h: supported(state.power),
        "nvmlDeviceGetTotalEnergyConsumption": lambda _h: supported(state.energy_mj),
        "nvmlDeviceGetUtilizationRates": lambda _h: SimpleNamespace(gpu=97),
        "nvmlDeviceGetMemoryInfo": lambda _h: SimpleNamespace(
            used=2**30, free=7 * 2**30, total=8 * 2**30
        ),
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _h: supported(state.throttle),
    }
    for name, value in values.items():
        monkeypatch.setattr(pynvml, name, unless_lost(value))
    return state


@pytest.fixture
def rig_3050() -> Rig:
    return rig.load(ROOT / "local-llamacpp-3050oem-2b-q4_0", environ={})


def test_the_rigs_card_is_found_by_name(stand: Stand, rig_3050: Rig) -> None:
    found = card.find(rig_3050)
    assert found is not None
    assert found.name == stand.name


@pytest.fixture
def three(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """Two of the rig's cards behind one of another kind."""
    names = ["NVIDIA GeForce GTX 1650 Ti", stand.name, stand.name]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 3)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: names[handle])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: f"GPU-{handle}-x")
    return stand


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("given", "uuid"),
    [("", "GPU-1-x"), ("2", "GPU-2-x"), ("GPU-2-x", "GPU-2-x"), ("0,2", "GPU-2-x")],
)
def test_of_several_one_is_meant(
    rig_3050: Rig, monkeypatch: pytest.MonkeyPatch, given: str, uuid: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    found = card.find(rig_3050)
    assert found is not None
    assert found.uuid == uuid


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("given", ["0", "7", "MIG-x", "-1", "GPU-9"])
def test_a_hidden_card_is_not_here(
    rig_3050: Rig, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    with pytest.raises(RigError, match=rf"\(CUDA_VISIBLE_DEVICES={given}\)"):
        card.find(rig_3050)


@pytest.mark.usefixtures("three")
def test_every_server_sees_the_rigs_card_alone(
    rig_3050: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    _preparing.take_card(rig_3050)
    assert serve.environment()["CUDA_VISIBLE_DEVICES"] == "GPU-1-x"


@pytest.mark.usefixtures("stand")
def test_another_card_is_an_error_that_names_both() -> None:
    other = rig.load(ROOT / "local-llamacpp-1650ti-2b-q4_0", environ={})
    with pytest.raises(RigError, match=r"for the card GTX_1650_Ti.*has: NVIDIA GeForce RTX 3050"):
        card.find(other)


def test_no_driver_is_one_sentence(monkeypatch: pytest.MonkeyPatch, rig_3050: Rig) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    with pytest.raises(RigError, match="no NVIDIA card can be used") as caught:
        card.find(rig_3050)
    assert "\n" not in str(caught.value)


def test_a_sample_says_what_is_absent(stand: Stand, rig_3050: Rig) -> None:
    found = card.find(rig_3050)
    assert found is not None
    stand.throttle = pynvml.nvmlClocksThrottleReasonSwPowerCap | 1
    sample = found.sample()
    assert (sample.power_w, sample.throttles) == (90.0, ("power limit",))
    stand.power = None
    assert found.sample().power_w is None


def test_cool_down_waits_for_the_first_temperature(
    stand: Stand, rig_3050: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = card.find(rig_3050)
    stand.temperature = 60
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        stand.temperature -= 1

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    temperature, waited = card.cool_down(found, 50)
    assert temperature == 52
    assert waited == pytest.approx(8 / card.HERTZ)
    stand.temperature = 10_000
    assert card.cool_down(found, 50)[1] == pytest.approx(card.COOL_LIMIT_S, abs=1)
    assert card.cool_down(None, 50) == (None, 0.0)


def test_telemetry_is_written_and_found_by_time(
    stand: Stand, rig_3050: Rig, tmp_path: Path
) -> None:
    stand.throttle = pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    with card.Telemetry(card.find(rig_3050), tmp_path / "telemetry.jsonl") as telemetry:
        while len(telemetry.seen) < 3:
            time.sleep(0.01)
    lines = [json.loads(line) for line in (tmp_path / "telemetry.jsonl").read_text().splitlines()]
    assert len(lines) == len(telemetry.seen)
    assert lines[0]["throttles"] == ["hardware thermal"]
    first, second = telemetry.seen[0][0], telemetry.seen[1][0]
    assert len(telemetry.during(first, second)) == 2
    assert telemetry.during(0, 1) == []


def test_energy_is_what_the_counter_moved_by(stand: Stand, rig_3050: Rig, tmp_path: Path) -> None:
    found = card.find(rig_3050)
    source = card.energy_source(found)
    assert source == "NVML energy counter"
    telemetry = card.Telemetry(found, tmp_path / "telemetry.jsonl", source)
    before = telemetry.joules()
    assert before == 5000
    stand.energy_mj = 5_012_345
    assert telemetry.drawn(before, 0, 1) == pytest.approx(12.345)


@pytest.mark.parametrize("after", [None, 5_000_000, 4_999_999])
def test_energy_that_is_not_known_is_absent(
    stand: Stand, rig_3050: Rig, tmp_path: Path, after: int | None
) -> None:
    """The counter fails, stands still, or begins anew."""
    telemetry = card.Telemetry(card.find(rig_3050), tmp_path / "file", "NVML energy counter")
    before = telemetry.joules()
    stand.energy_mj = after
    assert telemetry.drawn(before, 0, 1) is None
    stand.energy_mj = 6_000_000
    assert telemetry.drawn(before, 0, 1) == 1000
    assert telemetry.drawn(None, 0, 1) is None


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN])
def test_a_lost_card_is_one_line_and_never_a_reading(
    stand: Stand, rig_3050: Rig, tmp_path: Path, error: int
) -> None:
    found = card.find(rig_3050)
    assert found is not None
    with card.Telemetry(found, tmp_path / "file", "NVML energy counter") as telemetry:
        telemetry.check()
        stand.lost = error
        telemetry.ended.wait()
        seen = len(telemetry.seen)
        calls: list[Callable[[], object]] = [
            telemetry.check,
            lambda: telemetry.throttles(0, 1),
            telemetry.joules,
            lambda: card.cool_down(found, 40),
        ]
        for call in calls:
            with pytest.raises(card.LostError, match=r"card is lost \(NVML: .*RESUME=1") as caught:
                call()
            assert "\n" not in str(caught.value)
    assert len(telemetry.seen) == seen


def test_throttling_is_read_anew_where_no_reading_fell(
    stand: Stand, rig_3050: Rig, tmp_path: Path
) -> None:
    telemetry = card.Telemetry(card.find(rig_3050), tmp_path / "file")
    assert telemetry.throttles(0, 1) == []
    stand.throttle = pynvml.nvmlClocksThrottleReasonSwPowerCap
    assert telemetry.throttles(0, 1) == ["power limit"]
    stand.throttle = None
    assert telemetry.throttles(0, 1) is None
    assert card.Telemetry(None, tmp_path / "file").throttles(0, 1) == []


def test_telemetry_that_cannot_be_written_is_one_line(
    stand: Stand, rig_3050: Rig, tmp_path: Path
) -> None:
    assert not stand.lost
    with card.Telemetry(card.find(rig_3050), tmp_path / "gone" / "file") as telemetry:
        telemetry.ended.wait()
        with pytest.raises(RigError, match=r"gone/file cannot be written: No such file.*RESUME=1"):
            telemetry.check()


def readings(*watts: float | None) -> list[tuple[float, card.Sample]]:
    """From second 10 on, five a second."""
    return [
        (10.1 + index / card.HERTZ, card.Sample(None, None, None, power, 0.0, None, ()))
        for index, power in enumerate(watts)
    ]


def test_power_x_time_where_a_card_counts_no_energy(
    stand: Stand, rig_3050: Rig, tmp_path: Path
) -> None:
    stand.energy_mj = None
    found = card.find(rig_3050)
    source = card.energy_source(found)
    assert source == "NVML power x time"
    telemetry = card.Telemetry(found, tmp_path / "file", source)
    telemetry.seen = readings(50.0, 50.0, 100.0, 100.0, 100.0, 900.0)
    assert telemetry.drawn(None, 10, 11) == pytest.approx(80)
    assert telemetry.drawn(None, 10, 10.2) is None  # one reading says nothing of a trial
    assert telemetry.drawn(None, 10, 14) is None  # most are missing
    telemetry.seen = readings(50.0, None, None, None, 50.0)
    assert telemetry.drawn(None, 10, 11) is None
    stand.power = None
    assert card.energy_source(found) is None
