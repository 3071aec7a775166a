"""The true images of two kinds of card, llama.cpp compiled for each: make test-docker-cuda.

An hour the first time on 2 cores. LLAMA_CPP_COMMIT= (empty) takes the pinned release where no git
repository can be reached, BASE_IMAGE another base.
"""

import json
import os
from pathlib import Path

import pytest

from common.rig import ROOT
from tests.docker.conftest import run
from tests.helpers import cuda_image

RIGS = {"local-llamacpp-1650ti-2b-q4_0": "sm_75", "local-llamacpp-3050oem-2b-q4_0": "sm_86"}
HOURS = 5 * 3600
# Of whoever calls: a test's own environment is cleared of settings.
GIVEN = {key: os.environ[key] for key in ("LLAMA_CPP_COMMIT", "BASE_IMAGE") if key in os.environ}
pytestmark = [pytest.mark.docker_cuda, pytest.mark.timeout(HOURS + 600)]


@pytest.mark.parametrize("rig", RIGS)
def test_the_image_of_a_rig(rig: str, settings: dict[str, str], tmp_path: Path) -> None:
    clean = {key: value for key, value in settings.items() if key != "IMAGE"}
    environment = {**clean, **GIVEN, "PYTHONPATH": str(ROOT)}
    line = [str(ROOT / ".venv/bin/python"), "scripts/image_check.py", rig, str(tmp_path / "run")]
    print(run(line, environment, timeout=HOURS)[-2000:])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    print((tmp_path / "run" / "REPORT.md").read_text())
    assert summary["problems"] == []
    assert summary["machine_code"] == [RIGS[rig]]
    assert any(line.startswith("version: ") for line in summary["says"])
    name = run(["scripts/image.sh", rig, "name"], environment).strip()
    for number, case in enumerate(cuda_image.CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        cuda_image.says_so_in_one_line(name, rig, case, folder)
