"""What must be true of every rig: of those here, and of those that make new-rig makes."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from common import rig
from common.rig import Rig

BUILD = (
    "LLAMA_CPP_COMMIT",
    "LLAMA_CPP_RELEASE",
    "CUDA_VERSION",
    "CUDA_ARCHITECTURES",
    "CMAKE_EXTRA",
    "LLAMA_CPP_REPOSITORY",
    "LLAMA_CPP_RELEASE_SHA256",
)


def loads_under_a_true_name(folder: Path) -> None:
    assert rig.name_claims(rig.load(folder, environ={})) == []


def is_only_data(folder: Path) -> None:
    assert (folder / "Makefile").read_text() == "include ../common/rig.mk\n"
    assert (folder / "README.md").is_file()
    assert not list(folder.glob("**/*.py"))


def reads_the_same_in_python_bash_and_make(folder: Path, scratch: Path) -> None:
    path = folder / "tpu.env"
    ours = settings(folder)
    names = " ".join(ours)
    script = f'set -a; . "{path}"; for k in {names}; do printf "%s=%s\\n" "$k" "${{!k}}"; done'
    assert _by_line(_run(["bash", "-c", script])) == ours
    makefile = scratch / "Makefile"
    show = "\n".join(f"\t@printf '%s\\n' '{key}=$({key})'" for key in ours)
    makefile.write_text(f"include {path}\nall:\n{show}\n")
    assert _by_line(_run(["make", "-s", "-f", str(makefile)])) == ours


def reads_the_same_in_docker_compose(folders: list[Path], scratch: Path) -> None:
    """One call for all: docker compose takes its time to start."""
    services = ",\n".join(
        f"{folder.name}: {{image: none, env_file: ['{folder / 'tpu.env'}']}}" for folder in folders
    )
    compose = scratch / "compose.yaml"
    compose.write_text(f"services: {{{services}}}\n")
    text = _run(["docker", "compose", "-f", str(compose), "config", "--format", "json"])
    read = json.loads(text)["services"]
    for folder in folders:
        assert read[folder.name]["environment"] == settings(folder)


def settings(folder: Path) -> dict[str, str]:
    return {key: value for key, (value, _line) in rig.read_lines(folder / "tpu.env").items()}


def _run(command: list[str]) -> str:
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout


def _by_line(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def image_name(root: Path, name: str) -> str:
    command = [str(root / "scripts" / "image.sh"), name, "name"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def service_agrees(root: Path, compose: dict[str, Any], mine: Rig) -> None:
    """The rig's services in compose.yaml say what its tpu.env says."""
    name = mine.name
    service = compose["services"][name]
    assert service["profiles"] == [name]
    assert service["command"] == ["serve", name]
    assert compose["services"][f"{name}-files"]["command"] == ["fetch", name, "all"]
    assert service["env_file"] == [f"{name}/tpu.env"]
    assert service["ports"] == [f"127.0.0.1:${{PORT:-{mine.port}}}:${{PORT:-{mine.port}}}"]
    assert service["environment"]["PORT"] == f"${{PORT:-{mine.port}}}"
    assert service["image"] == f"${{IMAGE:-{image_name(root, name)}}}"
    assert compose["services"][f"{name}-files"]["image"] == service["image"]
    arguments = dict(service["build"]["args"])
    assert arguments.pop("BACKEND") == mine.backend
    old = mine.cuda_version is not None and mine.cuda_version.startswith("12.")
    assert arguments.pop("CUDA_DEVEL", None) == (f"cuda-{mine.cuda_version}" if old else None)
    in_file = {key: value for key, value in settings(mine.folder).items() if key in BUILD}
    assert {key: str(value) for key, value in arguments.items()} == in_file
    assert ("deploy" in service) == (mine.backend == "cuda")


def service_is_hardened(service: dict[str, Any], serves: bool) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["pids_limit"]
    assert service["mem_limit"]
    assert service["logging"]["options"]["max-size"] == "10m"
    if serves:
        assert service["volumes"][0].endswith(":/models:ro")
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["start_period"] == "15m"


def make(root: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Call make in `root`, on this host unless told otherwise."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(
        ["make", *arguments],
        capture_output=True,
        text=True,
        cwd=root,
        env={**clean, "RUNNER": "host", **environment},
    )
    return done.returncode, done.stdout, done.stderr


def help_names(root: Path, name: str, targets: list[str]) -> None:
    code, out, _err = make(root, "-C", name, "help")
    assert code == 0
    for target in targets:
        assert f"  {target} " in out


def runs_in_its_image(root: Path, name: str, in_image: bool) -> None:
    """Whether its targets run in the rig's image when nobody says where."""
    said = subprocess.run(
        ["make", "-n", "-C", str(root / name), "speed"], capture_output=True, text=True, check=True
    ).stdout
    assert bool(re.search(r"in_docker\.sh", said)) == in_image
