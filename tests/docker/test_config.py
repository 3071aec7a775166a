"""docker compose itself accepts every rig's service and reads its tpu.env as we do."""

import json
from pathlib import Path
from typing import Any

import pytest

from common import rig
from common.rig import ROOT
from tests.docker.conftest import run
from tests.helpers import rig_rules
from tests.rigs import test_new_rig

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
    assert [device["device_ids"] for device in devices or []] == [["0"]] * (mine.backend == "cuda")


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


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_odd_lines_read_the_same_in_compose(tmp_path: Path, end: str) -> None:
    folder = tmp_path / RIGS[-1]
    folder.mkdir()
    odd = ["# BACKEND=cuda", "#\u2028PORT=1", "# a\fHOST=0.0.0.0", " \t", "#'\"$(id)"]
    text = (ROOT / RIGS[-1] / rig.FILE).read_text() + "\n".join([*odd, ""])
    (folder / rig.FILE).write_bytes(text.replace("\n", end).encode())
    rig_rules.reads_the_same_in_docker_compose([folder], tmp_path)


def test_rigs_that_new_rig_makes_read_the_same_in_compose(tmp_path: Path) -> None:
    tree = test_new_rig.tree_of_all(tmp_path / "tree")
    folders = [tree / test_new_rig.name_of(*pair) for pair in test_new_rig.FITTING]
    rig_rules.reads_the_same_in_docker_compose(folders, tmp_path)


def test_all_of_the_project_that_runs_gets_into_the_image(
    settings: dict[str, str], tmp_path: Path
) -> None:
    """Code and what lies beside it: prompts, schemas, words, templates, styles, scripts/lists."""
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    out = tmp_path / "out"
    line = ["docker", "buildx", "build", "--quiet", "--file", str(tmp_path / "Dockerfile")]
    run([*line, "--output", f"type=local,dest={out}", "."], settings)
    found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    locks = ["requirements.lock", "requirements-cuda-*.lock", "requirements-page.lock"]
    wanted = ["common", "scripts", *locks, f"local-*/{rig.FILE}"]
    tracked = set(run(["git", "ls-files", "--", *wanted], settings).split())
    assert tracked <= found
    assert {path.split("/")[0] for path in found} == {path.split("/")[0] for path in tracked}
    assert not [path for path in found if path.endswith(".pyc")]
