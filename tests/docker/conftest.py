"""Fixtures: the CPU image, built from the Dockerfile, and a project name of its own for compose.

Nothing here skips: where Docker or the base image is missing the tests fail and say what to do.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker import DockerClient

from common import rig
from common.engines.llamacpp import source
from common.rig import ROOT
from tests.helpers.limits import HANG_S

TINY = "local-llamacpp-cpu-tiny-q4_0"
BASE = os.environ.get("BASE_IMAGE", "gemma-rigs-base:bookworm")
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerClient]:
    try:
        client = docker.from_env(timeout=int(HANG_S))
        client.images.get(BASE)
    except docker.errors.DockerException as error:
        pytest.fail(f"{error}; run scripts/ci_docker.sh first")
    yield client
    client.close()


@pytest.fixture(scope="session")
def project() -> str:
    return f"gemma-rigs-test-{os.getpid()}"


@pytest.fixture(scope="session")
def settings(project: str) -> dict[str, str]:
    """The environment of every command here: names of our own, and a fixed port."""
    clean = {key: value for key, value in os.environ.items() if key not in rig.KEYS}
    clean.pop("MAKEFLAGS", None)
    found = {**clean, "COMPOSE_PROJECT_NAME": project, "IMAGE": f"{project}:cpu"}
    if SYSTEM_CERTIFICATES.is_file():
        found["CA_BUNDLE"] = str(SYSTEM_CERTIFICATES)
    return found


@pytest.fixture(scope="session")
def image(engine: DockerClient, settings: dict[str, str]) -> Iterator[str]:
    """The image, built with the local base and the local llama.cpp source."""
    wanted = source.wanted(rig.load(ROOT / TINY, {}))[0]
    source.fetch(wanted)
    build = {**settings, "LLAMA_SRC": str(wanted.folder), "BASE_IMAGE": BASE}
    begin = time.monotonic()
    run(["make", "image", f"RIG={TINY}"], build, timeout=2400)
    name = settings["IMAGE"]
    size = engine.images.get(name).attrs["Size"] - engine.images.get(BASE).attrs["Size"]
    print(f"\nimage built in {time.monotonic() - begin:.1f} s, {size / 1e6:.0f} MB over its base")
    yield name
    engine.images.remove(name, force=True)


@pytest.fixture(scope="session", autouse=True)
def nothing_left(engine: DockerClient, project: str) -> Iterator[None]:
    """After the last test no container, network or volume of ours is there."""
    yield
    left = [container.name for container in engine.containers.list(all=True)]
    left += [network.name for network in engine.networks.list()]
    left += [volume.name for volume in engine.volumes.list()]
    ours = [name for name in left if name and name.startswith(project)]
    # The volumes of RUNNER=docker are kept for the next call by design; the rest must be gone.
    for name in (f"{project}_models", f"{project}_kernels"):
        if name in ours:
            engine.volumes.get(name).remove()
            ours.remove(name)
    assert ours == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the project, so that run directories do not land in the real one."""
    copy = tmp_path / "project"
    ignore = shutil.ignore_patterns(".venv", ".git", "__pycache__", "runs", ".*_cache")
    shutil.copytree(ROOT, copy, ignore=ignore)
    return copy


def run(
    command: list[str], environment: dict[str, str], cwd: Path = ROOT, timeout: float = HANG_S
) -> str:
    """Run it to its end; what it printed. A failure shows all of it."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        timeout=timeout,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, f"{' '.join(command)} gave {done.returncode}:\n{done.stdout}"
    return done.stdout
