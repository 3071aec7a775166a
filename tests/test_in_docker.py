"""Targets in the image, with a docker that only notes what it is asked: arguments, and what comes
home. tests/docker does the same on a real engine."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common import rig
from common.rig import ROOT
from common.rigs.cards import CUDA_VERSION
from scripts import _cli, lists

GPU_RIG = "local-llamacpp-1650ti-2b-q4_0"
HOME = "opt/gemma-rigs"
CPU_RIG = "local-llamacpp-cpu-tiny-q4_0"
DOCKER = """#!/bin/sh
# Notes each call in a line of $FAKE/calls. $FAKE/box is what the container holds.
echo "$@" >>"$FAKE/calls"
case "$1 ${2:-}" in
"info "*) echo '{"nvidia":{}}' ;;
"context show") echo here ;;
"image inspect")
    if [ "$3" = --format ]; then echo "${4%%=*}=sha256:of-$5"; fi ;;
"create "*)
    while [ "$1" != --env-file ]; do shift; done
    cp "$2" "$FAKE/environment"
    printenv >"$FAKE/values" ;;
"cp -q")
    case $3 in
    -) mkdir -p "$FAKE/box${4#*:}"; tar -C "$FAKE/box${4#*:}" -xf - ;;
    *tpu.env) cp "$FAKE/pinned" "$4" ;;
    *) if [ -d "$FAKE/box${3#*:}" ]; then cp -R "$FAKE/box${3#*:}" "$4"; fi ;;
    esac ;;
"start "*) if [ -f "$FAKE/meanwhile" ]; then sh "$FAKE/meanwhile"; fi ;;
"inspect "*) [ ! -f "$FAKE/down" ] || exit 1; echo exited ;;
"wait "*) cat "$FAKE/code" 2>/dev/null || echo 0 ;;
"buildx build") for last; do :; done; if [ "$last" = - ]; then cat >"$FAKE/dockerfile"; fi ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What in_docker.sh needs of the project, in a folder that it may write to."""
    tree = tmp_path / "project"
    shutil.copytree(ROOT / "scripts", tree / "scripts")
    for path in (ROOT / "Dockerfile", *ROOT.glob("requirements-cuda-*.lock")):
        shutil.copy(path, tree)
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
    tree: Path, fake: Path, verb: str, name: str = GPU_RIG, run: str = "", **settings: str
) -> tuple[int, str, list[str]]:
    """Run a verb; its exit code, what it said on stderr, and the calls of docker."""
    environment = {**os.environ, "FAKE": str(fake), "DOCKER_CONTEXT": "there", **settings}
    environment["PATH"] = f"{fake / 'bin'}:{environment['PATH']}"
    done = subprocess.run(
        [str(tree / "scripts" / "in_docker.sh"), *words(verb, run or name)],
        cwd=tree / name,
        env=environment,
        capture_output=True,
        text=True,
    )
    calls = fake / "calls"
    return done.returncode, done.stderr, calls.read_text().splitlines() if calls.is_file() else []


def words(verb: str, name: str) -> list[str]:
    """What rig.mk says: a script and the rig, or measure.py, the rig and the measurement."""
    script, *more = _cli.command(verb, name)[1:]
    return [f"scripts/{Path(script).name}", *more]


def of(calls: list[str], start: str) -> list[str]:
    return [line for line in calls if line.startswith(start)]


def test_a_measurement_is_refused_while_this_host_measures(
    tree: Path, fake: Path, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    settings = {"DOCKER_CONTEXT": "", "GEMMA_RIGS_LOCK": str(lock)}
    assert call(tree, fake, "speed", CPU_RIG, **settings)[:2] == (0, "")
    assert f"speed of {CPU_RIG}" in lock.read_text()
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (fake / "calls").unlink()
        code, err, calls = call(tree, fake, "speed", CPU_RIG, **settings)
        assert code == 1
        assert err.startswith(f"error: something is being measured on this host ({lock} says what)")
        assert not of(calls, "create")
        assert call(tree, fake, "doctor", CPU_RIG, **settings)[0] == 0  # which measures nothing
        assert call(tree, fake, "speed", CPU_RIG, GEMMA_RIGS_LOCK=str(lock))[0] == 0  # elsewhere
    lock.unlink()
    lock.symlink_to(tmp_path / "other")
    code, err, _calls = call(tree, fake, "speed", CPU_RIG, **settings)
    assert (code, "cannot be used; delete it" in err) == (1, True)


def test_a_container_that_measures_counts(tree: Path, fake: Path) -> None:
    top = """case "$1" in
ps) case "$*" in *gemma-rigs.run*) echo abc ;; esac ;;
top) echo "python /opt/gemma-rigs/scripts/measure.py rig speed" ;;
inspect) echo /gemma-rigs-mcp; exit ;;
esac
"""
    program = fake / "bin" / "docker"
    program.write_text(
        program.read_text().replace('case "$1 ${2:-}" in', top + 'case "$1 ${2:-}" in')
    )
    code, err, calls = call(tree, fake, "speed", CPU_RIG)
    assert code == 1
    assert "the container /gemma-rigs-mcp is measuring; wait for it" in err
    assert not of(calls, "create")


def test_builds_puts_both_engines_into_one_image(tree: Path, fake: Path) -> None:
    code, err, calls = call(tree, fake, "builds")
    assert (code, err) == (0, "")
    other, own, both = of(calls, "buildx build")
    assert f"CUDA_VERSION={CUDA_VERSION}" in own
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
    tags = [
        line.split("--tag ")[1].split()[0]
        for line in of((fake / "calls").read_text().splitlines(), "buildx build")
    ]
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
    assert mine.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in mine.parent.iterdir()] == [rig.FILE]
    # The file as it is here went in: an image run as it is may hold another.
    assert "PORT=9000" in (fake / "box" / HOME / GPU_RIG / rig.FILE).read_text()
    assert "--gpus" not in of(calls, "create")[0]
    assert of(calls, "rm --volumes")


@pytest.mark.parametrize("code", [1, 130])
def test_what_was_pinned_before_an_error_comes_home(tree: Path, fake: Path, code: int) -> None:
    """An interrupted one changes nothing."""
    mine = tree / GPU_RIG / rig.FILE
    before = mine.read_text()
    (fake / "pinned").write_text(before + "# pinned\n")
    (fake / "code").write_text(f"{code}\n")
    found, _err, calls = call(tree, fake, "pin")
    assert found == code
    assert mine.read_text() == (before + "# pinned\n" if code == 1 else before)
    assert of(calls, "rm --volumes")


def test_a_pin_that_wrote_nothing_touches_nothing(tree: Path, fake: Path) -> None:
    mine = tree / GPU_RIG / rig.FILE
    shutil.copy(mine, fake / "pinned")
    (fake / "code").write_text("1\n")
    before = mine.stat()
    code, err, _calls = call(tree, fake, "pin")
    assert (code, err) == (1, "")
    assert (mine.stat().st_ino, mine.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_tpu_env_edited_meanwhile_is_not_overwritten(tree: Path, fake: Path) -> None:
    mine = tree / GPU_RIG / rig.FILE
    (fake / "pinned").write_text("older\n")
    (fake / "meanwhile").write_text(f"echo '# mine' >>'{mine}'\n")
    code, err, calls = call(tree, fake, "pin")
    assert code == 1
    assert "tpu.env was changed while make pin ran" in err
    assert mine.read_text().endswith("# mine\n")
    assert of(calls, "rm --volumes")


def given(fake: Path, key: str) -> tuple[str, Path]:
    """A setting as the container gets it: by its bare name, from the environment of docker; and
    where the file of that name is on this host."""
    assert (fake / "environment").read_text().splitlines().count(key) == 1
    (value,) = [
        line.partition("=")[2]
        for line in (fake / "values").read_text().splitlines()
        if line.startswith(f"{key}=")
    ]
    return value, fake / "box" / value.lstrip("/")


def test_a_file_that_a_setting_names_goes_in(tree: Path, fake: Path, tmp_path: Path) -> None:
    (tmp_path / "my sums; x.jsonl").write_text("sums")
    wheel = tree / GPU_RIG / "data"
    wheel.mkdir()
    (wheel / "calls.json").write_text("calls")
    (tmp_path / "link").symlink_to(tmp_path / "my sums; x.jsonl")
    for name in ("my sums; x.jsonl", "link"):
        code, err, _calls = call(
            tree, fake, "accuracy", GSM8K_PATH=str(tmp_path / name), BFCL_PATH="data/"
        )
        assert (code, err) == (0, "")
        value, path = given(fake, "GSM8K_PATH")
        assert value == f"/tmp/given/GSM8K_PATH/{name}"  # noqa: S108 (in the container)
        assert path.read_text() == "sums"
        assert not path.is_symlink()
    value, path = given(fake, "BFCL_PATH")
    assert value == "/tmp/given/BFCL_PATH/data"  # noqa: S108 (in the container)
    assert (path / "calls.json").read_text() == "calls"
    assert "LONGCTX_DOC" not in (fake / "environment").read_text()


def test_a_document_that_tpu_env_names_has_one_name_in_every_container(
    tree: Path, fake: Path
) -> None:
    mine = tree / GPU_RIG / rig.FILE
    mine.write_text(mine.read_text() + "LONGCTX_DOC=book.txt\n")
    (mine.parent / "book.txt").write_text("text")
    found = set()
    for verb in ("longctx", "longmixed", "tune", "longctx"):
        assert call(tree, fake, verb)[0] == 0
        value, path = given(fake, "LONGCTX_DOC")
        assert path.read_text() == "text"
        found.add(value)
    assert found == {"/tmp/given/LONGCTX_DOC/book.txt"}  # noqa: S108 (in the container)
    call(tree, fake, "speed")  # reads no document
    assert "LONGCTX_DOC" not in (fake / "environment").read_text()


def test_drafters_go_in_and_names_in_the_models_folder_stay(
    tree: Path, fake: Path, tmp_path: Path
) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_text(name)
    drafters = f"theirs.gguf,{tmp_path}/a.gguf,{tmp_path}/b.gguf"
    assert call(tree, fake, "formats", FORMATS_EXTRA=drafters)[:2] == (0, "")
    names = given(fake, "FORMATS_EXTRA")[0].split(",")
    folder = "/tmp/given/FORMATS_EXTRA"  # noqa: S108 (in the container)
    assert names == ["theirs.gguf", f"{folder}/a.gguf", f"{folder}/b.gguf"]
    for name in names[1:]:
        assert (fake / "box" / name.lstrip("/")).read_text() == Path(name).name


@pytest.mark.parametrize(
    ("verb", "setting"),
    [
        ("accuracy", "GSM8K_PATH=no.jsonl"),
        ("accuracy", "BFCL_PATH=/no/folder"),
        ("longctx", "LONGCTX_DOC=no.txt"),
        ("formats", "FORMATS_EXTRA=theirs.gguf,/no/b.gguf"),
        ("mcp_server", "GSM8K_PATH=no.jsonl"),
        ("tune", "RUN=benchmarks/runs/no"),
    ],
)
def test_a_missing_file_is_said_before_anything_is_built(
    tree: Path, fake: Path, verb: str, setting: str
) -> None:
    key, value = setting.split("=")
    (fake / "down").touch()
    code, err, calls = call(tree, fake, verb, **{key: value})
    (fake / "down").unlink()
    assert code == 1
    assert value.split(",")[-1] in err
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert not of(calls, "buildx build")
    assert not of(calls, "create")
    # Another verb does not read that file.
    assert call(tree, fake, "speed", **{key: value})[:2] == (0, "")


def replace(tree: Path, old: str, new: str, name: str = GPU_RIG) -> Path:
    file = tree / name / rig.FILE
    assert old in file.read_text()
    file.write_bytes(file.read_text().replace(old, new).encode())
    return file


@pytest.mark.parametrize(
    ("line", "environ", "where"),
    [
        ("HOST=127.0.0.1\n", {}, "127.0.0.1"),
        ("", {}, "127.0.0.1"),
        ("HOST=\n", {}, "127.0.0.1"),
        ("HOST=::1\n", {}, "[::1]"),
        ("HOST=localhost\n", {}, "127.0.0.1"),
        ("HOST=127.0.0.1\n", {"HOST": ""}, "127.0.0.1"),
        ("HOST=127.0.0.1\n", {"HOST": "x86_64-conda-linux-gnu"}, "127.0.0.1"),
        ("HOST=127.0.0.1\n", {"HOST": "0.0.0.0"}, "0.0.0.0"),
    ],
)
def test_where_an_mcp_container_is_published(
    tree: Path, fake: Path, line: str, environ: dict[str, str], where: str
) -> None:
    replace(tree, "HOST=127.0.0.1\n", line)
    (fake / "down").touch()
    code, err, calls = call(tree, fake, "mcp_server", **environ)
    assert (code, err) == (0, "")
    assert f" --publish {where}:8080:8080 " in of(calls, "create")[0]


@pytest.mark.parametrize("value", ["127.0.0.1 --privileged -v /:/host", "$(id)", "'127.0.0.1'"])
def test_a_host_gives_docker_no_flags(tree: Path, fake: Path, value: str) -> None:
    replace(tree, "HOST=127.0.0.1\n", f"HOST={value}\n")
    (fake / "down").touch()
    code, err, calls = call(tree, fake, "mcp_server")
    assert (code, calls) == (1, [])
    assert "tpu.env, line " in err
    assert len(err.splitlines()) == 1


def test_windows_line_ends_build_the_same_image(tree: Path, fake: Path) -> None:
    _code, _err, calls = call(tree, fake, "speed")
    replace(tree, "\n", "\r\n")
    assert call(tree, fake, "speed")[:2] == (0, "")
    plain, windows = of((fake / "calls").read_text().splitlines(), "buildx build")
    assert windows == plain
    assert "BACKEND=cuda" in windows
    assert "--gpus all" in of((fake / "calls").read_text().splitlines(), "create")[1]
    assert len(of(calls, "create")) == 1


def test_compose_is_told_the_port_of_tpu_env(tree: Path, fake: Path) -> None:
    replace(tree, "PORT=8080", "PORT=9000")
    note = 'printf "%s\\n" "$PORT" >"$FAKE/port"\nexit\n'
    program = fake / "bin" / "docker"
    program.write_text(
        DOCKER.replace('case "$1', f'if [ "$1" = compose ]; then {note}fi\ncase "$1', 1)
    )
    assert call(tree, fake, "serve")[0] == 0
    assert (fake / "port").read_text() == "9000\n"
    assert call(tree, fake, "serve", PORT="9001")[0] == 0
    assert (fake / "port").read_text() == "9001\n"


@pytest.mark.parametrize(
    ("given", "volume"),
    [
        ("", "gemma-rigs_models"),
        ("/srv/models", "/srv/models"),
        ("~/my models", "/home/me/my models"),
        ("~", "/home/me"),
    ],
)
def test_where_models_are_on_the_docker_host(
    tree: Path, fake: Path, given: str, volume: str
) -> None:
    code, err, calls = call(tree, fake, "speed", MODELS_DIR=given, HOME="/home/me")
    assert (code, err) == (0, "")
    assert f" --volume {volume}:/models " in of(calls, "create")[0]


@pytest.mark.parametrize("given", ["models", "./models", "../models"])
def test_a_relative_models_folder_is_no_volume(tree: Path, fake: Path, given: str) -> None:
    code, err, calls = call(tree, fake, "speed", MODELS_DIR=given)
    assert (code, err) == (1, f"error: MODELS_DIR={given}: expected a path from / or ~/\n")
    assert not of(calls, "buildx build")


CARDS = "GPU-a, NVIDIA GeForce RTX 3050\nGPU-b, NVIDIA GeForce GTX 1650 Ti with Max-Q Design"


@pytest.mark.parametrize(
    ("environ", "flags"),
    [
        ({}, "--gpus device=GPU-b"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-c"}, "--gpus device=GPU-c"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-c --privileged"}, "--gpus device=GPU-b"),
        ({"DOCKER_CONTEXT": "there"}, "--gpus all"),
        ({"GPU_FLAGS": "--device nvidia.com/gpu=0"}, "--device nvidia.com/gpu=0"),
    ],
)
def test_a_container_gets_the_rigs_card_alone(
    tree: Path, fake: Path, environ: dict[str, str], flags: str
) -> None:
    smi = fake / "bin" / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\nprintf '%s\\n' '{CARDS}'\n")
    smi.chmod(0o755)
    script = tree / "scripts" / "in_docker.sh"  # this host has no driver
    script.write_text(script.read_text().replace("/proc/driver/nvidia/version", str(smi)))
    _code, err, calls = call(tree, fake, "speed", **{"DOCKER_CONTEXT": "", **environ})
    assert err == ""
    assert of(calls, "create")[0].startswith(f"create {flags} --name ")


FETCH = {"fetch", "pin", "repack", "serve", "tune", "mcp_server"}


@pytest.mark.parametrize("verb", sorted(lists.needs().keys() - {"stop", "status", "engine"}))
def test_the_token_goes_to_what_fetches_and_is_not_written_down(
    tree: Path, fake: Path, verb: str
) -> None:
    (tree / GPU_RIG / "benchmarks" / "runs" / "a").mkdir(parents=True)
    (fake / "pinned").write_text("")
    run = "benchmarks/runs/a" if verb in ("report", "rescore") else ""
    _code, _err, calls = call(tree, fake, verb, GPU_RIG, run, HF_TOKEN="hf_Q7zx", HF_ENDPOINT="x")
    assert "hf_Q7zx" not in "\n".join(calls)
    if verb == "serve":  # compose.yaml hands it to the service that fetches
        (line,) = of(calls, "compose --project")
        assert "--env HF_ENDPOINT" in line
        assert "HF_TOKEN" not in line
        return
    environment = (fake / "environment").read_text().splitlines()
    assert "HF_ENDPOINT" in environment
    # Not even its name: docker inspect would show the value that Docker takes for it.
    assert "HF_TOKEN" not in environment
    token = fake / "box" / "run" / "secrets" / "hf_token"
    assert token.is_file() == (verb in FETCH or verb in lists.measured())
    if token.is_file():
        assert token.read_text() == "hf_Q7zx"
        assert token.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this host has an NVIDIA card")
@pytest.mark.parametrize("verb", ["report", "rescore"])
def test_a_run_is_written_anew_in_the_container_without_a_card(
    tree: Path, fake: Path, verb: str
) -> None:
    """The fake runs the entry point in what would be the container's folder."""
    folder = tree / GPU_RIG / "benchmarks" / "runs" / "2026-11-29-accuracy-cpu"
    shutil.copytree(ROOT / "local-llamacpp-cpu-270m-q4_k_m/benchmarks/runs" / folder.name, folder)
    whole = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    (folder / "REPORT.md").write_text("lost")
    (fake / "meanwhile").write_text(
        f"cd '{fake / 'box' / HOME / GPU_RIG}' && exec '{sys.executable}' "
        f"'{ROOT}/scripts/entry.py' {verb} benchmarks/runs/{folder.name} >/dev/null"
    )
    for run in (f"benchmarks/runs/{folder.name}", str(folder)):
        code, err, calls = call(tree, fake, verb, run=run, DOCKER_CONTEXT="", DOCKER_HOST="")
        assert (code, err) == (0, "")
        (create,) = of(calls, "create")
        assert create.endswith(f" {verb} benchmarks/runs/{folder.name}")
        assert "--gpus" not in create
        (fake / "calls").unlink()
    assert (folder / "REPORT.md").read_bytes() == whole["REPORT.md"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_run_of_another_folder_is_refused(tree: Path, fake: Path, tmp_path: Path) -> None:
    code, err, calls = call(tree, fake, "report", run=str(tmp_path))
    assert code == 1
    assert f"{tmp_path} is not a run of {GPU_RIG}: in a container there are only those in" in err
    assert not of(calls, "create")


def test_tune_is_told_its_run_as_it_is_called_in_the_container(tree: Path, fake: Path) -> None:
    folder = tree / GPU_RIG / "benchmarks" / "runs" / "mine"
    folder.mkdir(parents=True)
    (fake / "pinned").write_text("PORT=1\n")
    assert call(tree, fake, "tune", RUN=str(folder), APPLY="0")[:2] == (0, "")
    assert given(fake, "RUN")[0] == "benchmarks/runs/mine"
    assert (tree / GPU_RIG / rig.FILE).read_text() != "PORT=1\n"
    assert call(tree, fake, "tune", RUN=str(folder), APPLY="1")[:2] == (0, "")
    assert (tree / GPU_RIG / rig.FILE).read_text() == "PORT=1\n"


def test_nothing_is_left_behind(
    tree: Path, fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "a.txt").write_text("text")
    call(tree, fake, "longctx", LONGCTX_DOC=str(tmp_path / "a.txt"))
    call(tree, fake, "longctx", LONGCTX_DOC="no.txt")
    assert list((tmp_path / "tmp").iterdir()) == []
