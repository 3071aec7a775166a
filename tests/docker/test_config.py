"""docker compose itself accepts every rig's service and reads its tpu.env as we do."""

import json
from pathlib import Path
from typing import Any

import pytest

from common import rig
from common.rig import ROOT
from tests import rig_rules, test_new_rig
from tests.docker.conftest import run

pytestmark = pytest.mark.docker

RIGS = sorted(folder.name for folder in rig.all_rigs())


def config(name: str, settings: dict[str, str]) -> dict[str, Any]:
    """Every service of the rig's profile, as compose understands it."""
    plain = {key: value for key, value in settings.items() if key != "IMAGE"}
    text = run(["docker", "compose", "--profile", name, "config", "--format", "json"], plain)
    return dict(json.loads(text)["services"])


@pytest.mark.parametrize("name", RIGS)
def test_compose_accepts_the_service_of_every_rig(name: str, settings: dict[str, str]) -> None:
    mine = rig.load(ROOT / name, {})
    services = config(name, settings)
    assert sorted(services) == [name, f"{name}-files"]
    service = services[name]
    arguments = service["build"]["args"]
    assert arguments["BACKEND"] == mine.backend
    assert arguments.get("CUDA_ARCHITECTURES", "") == ",".join(mine.cuda_architectures)
    (port,) = service["ports"]
    assert (port["host_ip"], port["published"]) == ("127.0.0.1", str(mine.port))
    devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices")
    assert [device["driver"] for device in devices or []] == ["nvidia"] * (mine.backend == "cuda")


@pytest.mark.parametrize("name", RIGS)
def test_compose_reads_every_tpu_env_as_we_do(name: str, settings: dict[str, str]) -> None:
    lines = rig.read_lines(ROOT / name / rig.FILE)
    ours = {key: value for key, (value, _line) in lines.items()}
    # HOST is inside the container another one: compose publishes the port on the loopback address.
    expected = {**ours, "HOST": "0.0.0.0"}
    assert config(name, settings)[name]["environment"] == expected
    # Fetching takes a token and an address from whoever calls, if they are there.
    of_caller = {key: settings.get(key) for key in ("HF_TOKEN", "HF_ENDPOINT")}
    assert config(name, settings)[f"{name}-files"]["environment"] == {**ours, **of_caller}


def test_rigs_that_new_rig_makes_read_the_same_in_compose(tmp_path: Path) -> None:
    tree = test_new_rig.tree_of_all(tmp_path / "tree")
    folders = [tree / test_new_rig.name_of(*pair) for pair in test_new_rig.FITTING]
    rig_rules.reads_the_same_in_docker_compose(folders, tmp_path)
