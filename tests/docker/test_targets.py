"""Targets with RUNNER=docker: results come home, signals and exit codes pass through."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient

from common.known import chain
from tests.docker.conftest import TINY, run
from tests.helpers.limits import HANG_S

FLAG = "-DGGML_CPU_REPACK=OFF"

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(2700),
    pytest.mark.usefixtures("image"),
]


def make(tree: Path, *arguments: str) -> list[str]:
    return ["make", "--no-print-directory", "-C", str(tree / TINY), "RUNNER=docker", *arguments]


def only_run(tree: Path) -> Path:
    (folder,) = (tree / TINY / "benchmarks" / "runs").iterdir()
    return folder


def read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))


def assert_known_answer(folder: Path) -> None:
    """The report's kept is what the pair must give, at every draft length."""
    rows = read(folder / "summary.json")["known_answer"]
    arms = {arm["arm"]: arm["kept"] for arm in read(folder / "summary.json")["arms"]}
    assert [row["arm"] for row in rows] == ["n=1", "n=2", "n=3"]
    for row in rows:
        assert row["equal"], row
        assert arms[row["arm"]]["accepted"] == row["expected"]["accepted"] > 0
        assert arms[row["arm"]]["drafted"] == row["expected"]["drafted"]
        assert f"{row['expected']['share']:.3f}" in (folder / "REPORT.md").read_text()


def test_speed_measures_in_the_image_and_brings_the_run_home(
    engine: DockerClient, image: str, settings: dict[str, str], tree: Path
) -> None:
    run(make(tree, "speed"), settings)
    folder = only_run(tree)
    assert_known_answer(folder)
    assert chain.WRONG_SHARE > 0  # otherwise every kept share is 1 and shows nothing
    manifest = read(folder / "manifest.json")
    assert manifest["image"] == engine.images.get(image).id
    assert manifest["engine"]["source"]["kind"] == "local"
    assert {path.stat().st_uid for path in folder.rglob("*")} == {os.getuid()}
    # The report can be made again, in the container, to the same bytes.
    report = (folder / "REPORT.md").read_bytes()
    (folder / "REPORT.md").write_text("lost")
    run(make(tree, "report", f"RUN=benchmarks/runs/{folder.name}"), settings)
    assert (folder / "REPORT.md").read_bytes() == report


@pytest.fixture
def other_image(engine: DockerClient, image: str) -> Iterator[str]:
    """The same engine again, which says of itself that it is the other build: a true one would
    take minutes to compile, and what is tested here is how the engines come together."""
    name = f"{image}-other"
    lines = [
        f"FROM {image}",
        "USER root",
        'RUN sed -i \'s/"-DLLAMA_OPENSSL=OFF"/&, "-DGGML_CPU_REPACK=OFF"/\' '
        "/opt/llama.cpp/bin/engine.json",
        "USER 10001:10001",
    ]
    command = ["docker", "buildx", "build", "--load", "--tag", name, "-"]
    subprocess.run(command, input="\n".join(lines), text=True, check=True)
    yield name
    engine.images.remove(name, force=True)


def test_builds_measures_both_engines_in_one_container(
    engine: DockerClient, image: str, other_image: str, settings: dict[str, str], tree: Path
) -> None:
    run(
        make(tree, "builds", "QUICK=1"),
        {**settings, "OTHER_IMAGE": other_image, "BUILDS_CMAKE_EXTRA": FLAG},
    )
    folder = only_run(tree)
    manifest = read(folder / "manifest.json")
    engine.images.remove(manifest["image"], force=True)
    flags = {arm: info["cmake"] for arm, info in manifest["engines"].items()}
    assert list(flags) == ["other none", "other n=2"]
    assert all(FLAG in found for found in flags.values())
    assert FLAG not in manifest["engine"]["cmake"]
    summary = read(folder / "summary.json")
    ids = [engine.images.get(name).id for name in (image, other_image)]
    assert [row["image"] for row in summary["builds"]] == ids
    assert [row["arm"] for row in summary["known_answer"]] == ["n=2", "other n=2"]
    assert all(row["equal"] for row in summary["known_answer"])
    starts = [json.loads(line) for line in (folder / "starts.jsonl").read_text().splitlines()]
    programs = {start["arm"]: start["command"][0] for start in starts}
    assert programs["other n=2"] == "/opt/llama.cpp/other/llama-server"
    assert programs["n=2"] == "/opt/llama.cpp/bin/llama-server"


def test_ctrl_c_ends_the_container_and_resume_goes_on(
    engine: DockerClient, settings: dict[str, str], tree: Path
) -> None:
    running = subprocess.Popen(
        make(tree, "speed"),
        env=settings,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("measuring into"):
            break
    time.sleep(1.5)  # some trials; a quick run could be over by then
    os.killpg(running.pid, signal.SIGINT)  # what a terminal does
    rest = running.communicate(timeout=HANG_S)[0]
    assert running.returncode != 0
    assert "RESUME=1 continues it" in rest
    assert engine.containers.list(all=True, filters={"name": f"{TINY}-speed"}) == []
    folder = only_run(tree)
    first = (folder / "samples.jsonl").read_text()
    assert read(folder / "manifest.json")["ended"] is None
    run(make(tree, "speed", "RESUME=1"), settings)
    assert only_run(tree) == folder
    assert (folder / "samples.jsonl").read_text().startswith(first)
    assert_known_answer(folder)


def test_a_second_run_on_one_day_has_its_own_folder(settings: dict[str, str], tree: Path) -> None:
    for _ in range(2):
        run(make(tree, "speed", "QUICK=1"), settings)
    names = sorted(path.name for path in (tree / TINY / "benchmarks" / "runs").iterdir())
    assert len(names) == 2
    assert names[1] == f"{names[0]}-2"


@pytest.mark.parametrize(
    ("verb", "change", "code", "text"),
    [
        ("show", "CTX_SIZE=many", 1, "CTX_SIZE=many: expected a whole number"),
        ("status", "CTX_SIZE=8192", 3, "is not being served"),
        ("show", "CTX_SIZE=4096", 0, "-c 4096"),
    ],
)
def test_settings_go_in_and_exit_codes_come_out(
    settings: dict[str, str], tree: Path, verb: str, change: str, code: int, text: str
) -> None:
    key, value = change.split("=")
    script = tree / "scripts" / "in_docker.sh"
    done = subprocess.run(
        [str(script), f"{verb}.py", TINY],
        cwd=tree / TINY,
        env={**settings, key: value},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code
    assert text in done.stdout + done.stderr


def test_serve_status_stop(settings: dict[str, str], tree: Path, free_port: int) -> None:
    here = {**settings, "PORT": str(free_port)}
    serving = subprocess.Popen(
        make(tree, "serve"),
        env=here,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert serving.stdout is not None
    for line in serving.stdout:
        if line.startswith("drafter: works"):
            break
    else:
        pytest.fail("serve ended before it was ready")
    try:
        assert "health: ok" in run(make(tree, "status"), here)
    finally:
        run(make(tree, "stop"), here)
        serving.communicate(timeout=HANG_S)
        run(["docker", "compose", "--profile", TINY, "down"], here, tree)


def test_an_image_for_another_backend_says_so(image: str) -> None:
    wrong = "local-llamacpp-3050oem-2b-q4_0"
    done = subprocess.run(
        ["docker", "run", "--rm", image, "serve", wrong], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "wants BACKEND=cuda, this image was built for cpu" in done.stderr
