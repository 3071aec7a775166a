"""The image of a rig with a card: a stand-in for llama.cpp through the true stages, for two cards;
then what it does with drivers that are not there.

CUDA's compiler is the real one of the package index; only llama.cpp is small.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient

from common import rig
from common.engines.llamacpp import toolkit
from common.kinds.image_check import plan
from common.rig import ROOT
from tests.docker.conftest import BASE, run
from tests.helpers import cuda_image, cuda_source

RIG = "local-llamacpp-1650ti-2b-q4_0"
pytestmark = [pytest.mark.docker, pytest.mark.timeout(2700)]


@pytest.fixture(scope="module")
def build(settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the stand-in is built, as `make builds` names its two images."""
    tree = cuda_source.write(tmp_path_factory.mktemp("source") / "llama.cpp")
    given = {"LLAMA_SRC": str(tree), "BASE_IMAGE": BASE, "BUILDS_CUDA_VERSION": "13.4.1"}
    other = {"BUILDS_CUDA_ARCHITECTURES": "86-real", "BUILDS_CMAKE_EXTRA": ""}
    names = {"IMAGE": f"{settings['COMPOSE_PROJECT_NAME']}:cuda"}
    return {**settings, **given, **other, **names}


@pytest.fixture(scope="module")
def looked(
    engine: DockerClient, build: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The run directory of make image-check."""
    folder = tmp_path_factory.mktemp("looked") / "run"
    line = [str(ROOT / ".venv/bin/python"), "scripts/image_check.py", RIG, str(folder)]
    print(run(line, {**build, "PYTHONPATH": str(ROOT)}, timeout=2400))
    yield folder
    engine.images.remove(build["IMAGE"], force=True)


def read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))


def test_it_is_as_an_image_for_a_card_should_be(looked: Path) -> None:
    summary = read(looked / "summary.json")
    assert summary["problems"] == []
    assert summary["machine_code"] == ["sm_75"]
    assert summary["missing"] == [plan.DRIVER]
    assert summary["says"] == ["version: 1 (stand-in)"]
    libraries = {part["name"].partition(".so")[0] for part in summary["libraries"]}
    assert libraries >= {"libcudart", "libcublas", "libcublasLt", "libnvrtc"}
    assert "libnvblas" not in libraries  # of the toolkit, and nothing opens it
    assert 0 < summary["compressed_bytes"] < summary["bytes"]
    report = (looked / "REPORT.md").read_text()
    assert "Not run on a card" in report
    engine = read(looked / "manifest.json")["engine"]
    assert (engine["nvcc"], engine["machine_code"]) == ("13.4.59", ["sm_75"])


@pytest.mark.parametrize("case", cuda_image.CASES)
def test_without_a_card_that_works_it_says_so_in_one_line(
    case: str, looked: Path, build: dict[str, str], tmp_path: Path
) -> None:
    assert looked.is_dir()
    cuda_image.says_so_in_one_line(build["IMAGE"], RIG, case, tmp_path)


def test_make_builds_puts_two_cuda_engines_into_one_image(
    engine: DockerClient, looked: Path, build: dict[str, str], tmp_path: Path
) -> None:
    assert looked.is_dir()
    other = f"{build['COMPOSE_PROJECT_NAME']}:cuda86"
    two = {**build, "OTHER_IMAGE": other}
    run(["scripts/image.sh", RIG, "build", "other"], two, timeout=2400)
    said = run(["scripts/image.sh", RIG, "both"], two)
    both = said.split()[-1]
    try:
        cuda = toolkit.get(str(rig.load(ROOT / RIG, {}).cuda_version), print)
        for name, place, code in (
            ("own", plan.SERVER, ["sm_75"]),
            ("other", "/opt/llama.cpp/other/llama-server", ["sm_86"]),
        ):
            (tmp_path / name).mkdir()
            program = plan.copied(engine, engine.images.get(both), place, tmp_path / name)
            assert cuda.code(program) == code
            dynamic = subprocess.run(["readelf", "-d", program], capture_output=True, text=True)
            # Not the toolkit's folder, where a stand-in for the driver's library lies.
            assert "RUNPATH" in dynamic.stdout
            (paths,) = re.findall(r"RUNPATH.*\[(.*)\]", dynamic.stdout)
            assert paths == "$ORIGIN/lib"
            ldd = ["docker", "run", "--rm", "--entrypoint", "ldd", both, place]
            linked = subprocess.run(ldd, capture_output=True, text=True, check=True).stdout
            found = [line.split()[2] for line in linked.splitlines() if "libcublas" in line]
            assert {Path(path).parent for path in found} == {Path(place).with_name("lib")}
    finally:
        for name in (both, other):
            engine.images.remove(name, force=True)
