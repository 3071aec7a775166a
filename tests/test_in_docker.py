"""Targets in the image, with a docker that only notes what it is asked: arguments, and what comes
home. tests/docker does the same on a real engine."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from common import rig
from common.rig import ROOT
from scripts import cli

GPU_RIG = "local-llamacpp-1650ti-2b-q4_0"
CPU_RIG = "local-llamacpp-cpu-tiny-q4_0"
DOCKER = """#!/bin/sh
# Notes each call in a line of $FAKE/calls; what goes in, and what is in a container, lie there too.
echo "$@" >>"$FAKE/calls"
case "$1 ${2:-}" in
"info "*) echo '{"nvidia":{}}' ;;
"context show") echo here ;;
"image inspect")
    if [ "$3" = --format ]; then echo "${4%%=*}=sha256:of-$5"; fi ;;
"create "*)
    while [ "$1" != --env-file ]; do shift; done
    cp "$2" "$FAKE/environment" ;;
"cp -q")
    case $3 in
    -) mkdir -p "$FAKE/in"; tar -C "$FAKE/in" -xf - ;;
    *tpu.env) cp "$FAKE/pinned" "$4" ;;
    esac ;;
"start "*) if [ -f "$FAKE/meanwhile" ]; then sh "$FAKE/meanwhile"; fi ;;
"inspect "*) echo exited ;;
"wait "*) cat "$FAKE/code" 2>/dev/null || echo 0 ;;
"buildx build") for last; do :; done; if [ "$last" = - ]; then cat >"$FAKE/dockerfile"; fi ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What in_docker.sh needs of the project, in a folder that it may write to."""
    tree = tmp_path / "project"
    shutil.copytree(ROOT / "scripts", tree / "scripts")
    for name in (GPU_RIG, CPU_RIG):
        (tree / name).mkdir()
        shutil.copy(ROOT / name / rig.FILE, tree / name)
    return tree


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """The folder of the fake docker's notes."""
    found = tmp_path / "fake"
    (found / "bin").mkdir(parents=True)
    (found / "bin" / "docker").write_text(DOCKER)
    (found / "bin" / "docker").chmod(0o755)
    return found


def call(
    tree: Path, fake: Path, verb: str, name: str = GPU_RIG, **settings: str
) -> tuple[int, str, list[str]]:
    """Run a verb; its exit code, what it said on stderr, and the calls of docker."""
    environment = {**os.environ, "FAKE": str(fake), "DOCKER_CONTEXT": "there", **settings}
    environment["PATH"] = f"{fake / 'bin'}:{environment['PATH']}"
    done = subprocess.run(
        [str(tree / "scripts" / "in_docker.sh"), *words(verb, name)],
        cwd=tree / name, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stderr, (fake / "calls").read_text().splitlines()


def words(verb: str, name: str) -> list[str]:
    """What rig.mk says: a script and the rig, or measure.py, the rig and the measurement."""
    script, *more = cli.command(verb, name)[1:]
    return [f"scripts/{Path(script).name}", *more]


def of(calls: list[str], start: str) -> list[str]:
    return [line for line in calls if line.startswith(start)]


def test_builds_puts_both_engines_into_one_image(tree: Path, fake: Path) -> None:
    code, err, calls = call(tree, fake, "builds")
    assert (code, err) == (0, "")
    other, own, both = of(calls, "buildx build")
    assert "CUDA_VERSION=13.4.1" in own
    assert "CUDA_ARCHITECTURES=75-real" in own
    assert "CMAKE_EXTRA" not in own
    assert "CUDA_VERSION=12.8.1" in other
    assert "CUDA_ARCHITECTURES=61-virtual,80-virtual" in other
    assert "CMAKE_EXTRA=-DGGML_CUDA_FORCE_MMQ=ON" in other
    names = {}
    for line in (own, other, both):
        words = line.split()
        names[line] = words[words.index("--tag") + 1]
    assert len(set(names.values())) == 3
    # The engines are taken from those two, by the builder that has this Docker host's images.
    assert f"RIG_IMAGE={names[own]}" in both
    assert f"OTHER_IMAGE={names[other]}" in both
    assert "--builder here" in both
    assert both.endswith(" -")
    assert (fake / "dockerfile").read_text() == (ROOT / "scripts/both.Dockerfile").read_text()
    # That image is what runs, with the card, and all three digests go in.
    (create,) = of(calls, "create")
    assert f" {names[both]} builds {GPU_RIG}" in create
    assert "--gpus all" in create
    environment = (fake / "environment").read_text().splitlines()
    for key, line in (("IMAGE", both), ("RIG_IMAGE", own), ("OTHER_IMAGE", other)):
        assert f"{key}_DIGEST=sha256:of-{names[line]}" in environment


def test_another_other_build_is_another_image(tree: Path, fake: Path) -> None:
    call(tree, fake, "builds", CPU_RIG, BUILDS_CMAKE_EXTRA="-DGGML_CPU_REPACK=OFF")
    call(tree, fake, "builds", CPU_RIG, BUILDS_CMAKE_EXTRA="-DGGML_NATIVE=OFF")
    tags = [line.split("--tag ")[1].split()[0] for line in of(
        (fake / "calls").read_text().splitlines(), "buildx build")]  # fmt: skip
    first, own, both, second, own_again, both_again = tags
    assert own == own_again
    assert len({first, second, own, both, both_again}) == 5
    assert "BUILDS_CMAKE_EXTRA" in (fake / "environment").read_text().splitlines()


def test_images_that_are_run_as_they_are(tree: Path, fake: Path) -> None:
    _code, _err, calls = call(tree, fake, "builds", IMAGE="mine:1", OTHER_IMAGE="theirs:1")
    (both,) = of(calls, "buildx build")
    assert "RIG_IMAGE=mine:1" in both
    assert "OTHER_IMAGE=theirs:1" in both


def test_two_builds_that_are_one(tree: Path, fake: Path) -> None:
    code, err, calls = call(tree, fake, "builds", CPU_RIG, IMAGE="a:1", OTHER_IMAGE="a:1")
    assert code == 1
    assert "the other build is the rig's own; set BUILDS_CUDA_VERSION" in err
    assert not of(calls, "create")


def test_other_targets_build_one_image(tree: Path, fake: Path) -> None:
    _code, _err, calls = call(tree, fake, "speed")
    assert len(of(calls, "buildx build")) == 1
    environment = (fake / "environment").read_text()
    assert "IMAGE_DIGEST=" in environment
    assert "OTHER_IMAGE_DIGEST" not in environment


def test_pin_brings_the_pins_home(tree: Path, fake: Path) -> None:
    mine = tree / GPU_RIG / rig.FILE
    mine.write_text(mine.read_text().replace("PORT=8080", "PORT=9000"))
    mine.chmod(0o640)
    pinned = mine.read_text().replace("MODEL_SHA256=\n", f"MODEL_SHA256={'a' * 64}\n", 1)
    (fake / "pinned").write_text(pinned)
    code, err, calls = call(tree, fake, "pin")
    assert (code, err) == (0, "")
    assert mine.read_text() == pinned
    assert [path.name for path in mine.parent.iterdir()] == [rig.FILE]
    # The file as it is here went in: an image run as it is may hold another.
    assert "PORT=9000" in (fake / "in" / rig.FILE).read_text()
    assert "--gpus" not in of(calls, "create")[0]
    assert of(calls, "rm --volumes")


def test_a_pin_that_failed_changes_nothing(tree: Path, fake: Path) -> None:
    mine = tree / GPU_RIG / rig.FILE
    before = mine.read_bytes()
    (fake / "pinned").write_text("not to be brought\n")
    (fake / "code").write_text("1\n")
    code, _err, calls = call(tree, fake, "pin")
    assert code == 1
    assert mine.read_bytes() == before
    assert of(calls, "rm --volumes")


def test_a_tpu_env_edited_meanwhile_is_not_overwritten(tree: Path, fake: Path) -> None:
    mine = tree / GPU_RIG / rig.FILE
    (fake / "pinned").write_text("older\n")
    (fake / "meanwhile").write_text(f"echo '# mine' >>'{mine}'\n")
    code, err, calls = call(tree, fake, "pin")
    assert code == 1
    assert "tpu.env was changed while make pin ran" in err
    assert mine.read_text().endswith("# mine\n")
    assert of(calls, "rm --volumes")
