"""The card, through a stand-in for NVML."""

import json
import time
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
    throttle = 0
    power: int | None = 90_000


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    state = Stand()

    def power(_handle: object) -> int:
        if state.power is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return state.power

    values: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _h: state.name,
        "nvmlDeviceGetTemperature": lambda _h, _kind: state.temperature,
        "nvmlDeviceGetClockInfo": lambda _h, _kind: 1500,
        "nvmlDeviceGetPowerUsage": power,
        "nvmlDeviceGetUtilizationRates": lambda _h: SimpleNamespace(gpu=97),
        "nvmlDeviceGetMemoryInfo": lambda _h: SimpleNamespace(
            used=2**30, free=7 * 2**30, total=8 * 2**30
        ),
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _h: state.throttle,
    }
    for name, value in values.items():
        monkeypatch.setattr(pynvml, name, value)
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
