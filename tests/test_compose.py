"""compose.yaml, the Dockerfile and the scripts around them say what the rigs say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from common import rig
from common.rig import ROOT, Rig
from common.rigs import services
from common.rigs.cards import CUDA_VERSION
from tests.helpers import rig_rules

RIGS = sorted(folder.name for folder in rig.all_rigs())
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())


@pytest.fixture
def tool_folder(tmp_path: Path) -> Path:
    """A folder first on PATH, for stand-ins of programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def script(name: str, *arguments: str, **change: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **change}
    command = [str(ROOT / "scripts" / name), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def loaded(name: str) -> Rig:
    return rig.load(ROOT / name, {})


def test_every_rig_has_one_service_and_its_files() -> None:
    assert sorted(COMPOSE["services"]) == sorted([*RIGS, *(f"{name}-files" for name in RIGS)])


@pytest.mark.parametrize("name", RIGS)
def test_service_agrees_with_tpu_env(name: str) -> None:
    rig_rules.service_agrees(ROOT, COMPOSE, loaded(name))


def test_it_is_made_of_the_rigs() -> None:
    assert (ROOT / "compose.yaml").read_text() == services.anew(), "make compose"


def test_an_image_without_a_rig_takes_the_cuda_of_new_rigs() -> None:
    assert f"\nARG CUDA_VERSION={CUDA_VERSION}\n" in (ROOT / "Dockerfile").read_text()


# Those of the image specification that a build can know; it reserves the rest of the name.
OCI = {
    *("created", "authors", "url", "documentation", "source", "version", "revision", "vendor"),
    *("licenses", "title", "description", "base.name", "base.digest"),
}


def test_labels_have_the_names_of_the_image_specification() -> None:
    text = (ROOT / "Dockerfile").read_text()
    (block,) = re.findall(r"^LABEL ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    labels = dict(re.findall(r'([\w.-]+)="([^"]*)"', block))
    prefix = "org.opencontainers.image."
    ours = {key.removeprefix(prefix): said for key, said in labels.items() if prefix in key}
    assert set(ours) <= OCI
    assert ours["base.name"] == "${BASE}"
    assert ours["base.digest"] == "${BASE_DIGEST}"
    assert ours["revision"] == "${LLAMA_CPP_COMMIT}"
    assert ours["version"] == "${LLAMA_CPP_RELEASE}"
    nvidia = "${CUDA_ARCHITECTURES:+ AND LicenseRef-NVIDIA-CUDA-EULA}"
    assert ours["licenses"] == f"Apache-2.0 AND MIT{nvidia}"
    assert "\nCOPY --from=llama-src /LICENSE /opt/llama.cpp/\n" in text
    # It wants the whole name of a base, with the registry.
    assert re.search(r"^ARG BASE=[\w.-]+\.\w+/\S+:\S+$", text, re.MULTILINE)
    # A build argument is known to the stage that asks for it.
    runtime = text[text.index(" AS runtime\n") : text.index("\nLABEL ")]
    for key in re.findall(r"\$\{(\w+)\}", block):
        assert re.search(rf"^ARG {key}(=|$)", runtime, re.MULTILINE), key


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_every_service_is_hardened(name: str) -> None:
    rig_rules.service_is_hardened(COMPOSE["services"][name], name in RIGS)


def test_gpu_rigs_reserve_one_card() -> None:
    (device,) = COMPOSE["x-card"]["resources"]["reservations"]["devices"]
    (uuid,) = device.pop("device_ids")
    assert uuid == "${GPU_UUID:-0}"
    assert device == {"driver": "nvidia", "capabilities": ["gpu"]}


@pytest.fixture
def recorded_build(tool_folder: Path) -> dict[str, str]:
    """A docker that only prints its arguments, one a line."""
    program = tool_folder / "docker"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    return {"PATH": f"{tool_folder}:{os.environ['PATH']}"}


def test_build_arguments_are_those_of_the_rig(recorded_build: dict[str, str]) -> None:
    name = "local-llamacpp-1650ti-2b-q4_0"
    said = script("image.sh", name, **recorded_build).stdout.splitlines()
    for key in ("LLAMA_CPP_COMMIT", "CUDA_VERSION", "CUDA_ARCHITECTURES"):
        assert f"{key}={loaded(name).settings()[key]}" in said
    assert "BACKEND=cuda" in said
    assert not [line for line in said if line.startswith(("CMAKE_EXTRA", "llama-src", "id=ca"))]


def test_another_build_of_a_card_has_another_name(recorded_build: dict[str, str]) -> None:
    """The setting for cards without tensor cores: arguments go in whole, the tag tells it apart."""
    name = "local-llamacpp-1650ti-2b-q4_0"
    change = {
        "CUDA_VERSION": "12.8.1",
        "CUDA_ARCHITECTURES": "61-virtual,80-virtual",
        "CMAKE_EXTRA": "-DGGML_CUDA_FORCE_MMQ=ON",
    }
    said = script("image.sh", name, **recorded_build, **change).stdout.splitlines()
    for key, value in change.items():
        assert f"{key}={value}" in said
    tag = said[said.index("--tag") + 1]
    commit = loaded(name).llama_cpp_commit
    assert re.fullmatch(rf"gemma-rigs:{commit}-cuda12\.8\.1-61-virtual_80-virtual-\d+", tag)
    assert tag != script("image.sh", name, "name").stdout.strip()


def test_replaced_stages_and_certificates(recorded_build: dict[str, str], tmp_path: Path) -> None:
    change = {"LLAMA_SRC": str(tmp_path), "BASE_IMAGE": "base:1", "CA_BUNDLE": "/ca.pem"}
    name = "local-llamacpp-cpu-tiny-q4_0"
    said = script("image.sh", name, **recorded_build, **change).stdout.splitlines()
    assert f"llama-src={tmp_path}" in said
    assert "BASE=base:1" in said
    assert "BASE_DIGEST=" in said
    assert "id=ca_bundle,src=/ca.pem" in said
    assert said[said.index("--tag") + 1].endswith("-local")  # never passes for the pinned source


def in_docker(
    verb: str, name: str, tool_folder: Path, docker: str | None
) -> subprocess.CompletedProcess[str]:
    """Call in_docker.sh with a stand-in for docker (None: none at all)."""
    for tool in (
        "sh",
        "dirname",
        "basename",
        "sed",
        "grep",
        "tail",
        "tr",
        "cut",
        "printenv",
        "cksum",
        "sort",
        "uniq",
    ):
        (tool_folder / tool).symlink_to(Path("/usr/bin") / tool)
    if docker is not None:
        (tool_folder / "docker").write_text(f"#!/bin/sh\n{docker}\n")
        (tool_folder / "docker").chmod(0o755)
    return subprocess.run(
        ["/bin/sh", str(ROOT / "scripts" / "in_docker.sh"), f"{verb}.py", name],
        # another Docker host is named, so that this host's lack of a card does not come first
        cwd=ROOT / name,
        env={"PATH": str(tool_folder), "DOCKER_CONTEXT": "there"},
        capture_output=True,
        text=True,
    )


GPU_RIG = "local-llamacpp-3050oem-2b-q4_0"
NO_RUNTIME = 'case "$1" in info) echo "{\\"runc\\":{}}" ;; esac'


@pytest.mark.parametrize(
    ("docker", "text"),
    [
        (None, "Docker is not installed; install Docker Engine"),
        ("echo permission denied while trying >&2; exit 1", "usermod -aG docker"),
        ("echo Cannot connect to the Docker daemon >&2; exit 1", "sudo systemctl start docker"),
        ('case "$1" in buildx) exit 1 ;; esac', "install docker-buildx-plugin"),
        ('case "$1" in compose) exit 1 ;; esac', "docker-compose-plugin"),
        (NO_RUNTIME, "nvidia-ctk runtime configure"),
    ],
)
def test_what_the_host_lacks_is_named_with_its_fix(
    tool_folder: Path, docker: str | None, text: str
) -> None:
    done = in_docker("speed", GPU_RIG, tool_folder, docker)
    assert done.returncode == 1
    assert text in done.stderr
    assert done.stderr.startswith("error: ")


def use(tree: Path, tool_folder: Path, cards: str | None, *arguments: str) -> str:
    """Call use.sh in a copy, on a host with these cards, a line each; what it printed."""
    shutil.copytree(ROOT / "scripts", tree / "scripts", dirs_exist_ok=True)
    if not (tree / "compose.yaml").exists():
        shutil.copy(ROOT / "compose.yaml", tree)
    for name in RIGS:
        (tree / name).mkdir(exist_ok=True)
        (tree / name / "tpu.env").write_bytes((ROOT / name / "tpu.env").read_bytes())
    if cards is not None:
        lines = "".join(f"GPU-{n}-a, {card}\n" for n, card in enumerate(cards.splitlines()))
        (tool_folder / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{lines}'\n")
        (tool_folder / "nvidia-smi").chmod(0o755)
    done = subprocess.run(
        ["sh", str(tree / "scripts/use.sh"), *arguments],
        capture_output=True,
        text=True,
        env={"PATH": f"{tool_folder}:{os.environ['PATH']}"},
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("NVIDIA GeForce RTX 3050 OEM", "local-llamacpp-3050oem-2b-q4_0"),
        ("NVIDIA GeForce GTX 1650 Ti with Max-Q Design", "local-llamacpp-1650ti-2b-q4_0"),
    ],
)
def test_use_picks_the_rig_of_the_card(
    tmp_path: Path, tool_folder: Path, card: str, name: str
) -> None:
    (tmp_path / ".env").write_text("PORT=9000\nCOMPOSE_PROFILES=old\n")
    said = use(tmp_path, tool_folder, card)
    assert f"docker compose up now serves {name}" in said
    assert name.replace("2b", "4b") in said  # the other rig of this card is named
    assert (tmp_path / ".env").read_text() == (
        f"PORT=9000\nCOMPOSE_PROFILES={name}\nGPU_UUID=GPU-0-a\n"
    )


def test_use_takes_whole_words_of_the_name(tmp_path: Path, tool_folder: Path) -> None:
    said = use(tmp_path, tool_folder, "NVIDIA GeForce RTX 30500")
    assert "no rig is for this card" in said


def test_use_without_a_fitting_card_lists_the_rigs(tmp_path: Path, tool_folder: Path) -> None:
    said = use(tmp_path, tool_folder, "NVIDIA L4")
    assert "no rig is for this card (NVIDIA L4)" in said
    assert all(name in said for name in RIGS)
    assert not (tmp_path / ".env").exists()
    assert "is not a rig" in use(tmp_path, tool_folder, None, "no-such-rig")


TWO = "NVIDIA GeForce GTX 1650 Ti with Max-Q Design\nNVIDIA GeForce RTX 3050 OEM"


def test_use_lets_the_user_choose_between_two_kinds(tmp_path: Path, tool_folder: Path) -> None:
    for cards in (TWO, "\n".join(reversed(TWO.splitlines()))):
        said = use(tmp_path, tool_folder, cards)
        assert said.startswith("error: cards of 2 kinds are here; name a rig: make use RIG=...")
        assert len(said.splitlines()) == 1
        assert all(name in said for name in RIGS if "cpu" not in name)
        assert not (tmp_path / ".env").exists()
    said = use(tmp_path, tool_folder, TWO, "local-llamacpp-3050oem-2b-q4_0/")
    assert said == "docker compose up now serves local-llamacpp-3050oem-2b-q4_0\n"
    assert "GPU_UUID=GPU-1-a\n" in (tmp_path / ".env").read_text()
    use(tmp_path, tool_folder, TWO, "local-llamacpp-cpu-tiny-q4_0")
    assert "GPU_UUID" not in (tmp_path / ".env").read_text()


def test_two_cards_of_one_kind_are_no_question(tmp_path: Path, tool_folder: Path) -> None:
    said = use(tmp_path, tool_folder, "NVIDIA GeForce RTX 3050\nNVIDIA GeForce RTX 3050")
    assert "docker compose up now serves local-llamacpp-3050oem-2b-q4_0" in said
    assert "GPU_UUID=GPU-0-a\n" in (tmp_path / ".env").read_text()


def test_an_env_with_other_bytes_keeps_its_lines(tmp_path: Path, tool_folder: Path) -> None:
    (tmp_path / ".env").write_bytes(b"HF_TOKEN=hf_Q7zx\r\nA=\xff\0\nCOMPOSE_PROFILES=old\n")
    name = "local-llamacpp-cpu-tiny-q4_0"
    use(tmp_path, tool_folder, None, name)
    kept = b"HF_TOKEN=hf_Q7zx\r\nA=\xff\0\n"
    assert (tmp_path / ".env").read_bytes() == kept + f"COMPOSE_PROFILES={name}\n".encode()


def test_a_part_that_is_a_link_is_not_written_through(tmp_path: Path, tool_folder: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".env.part").symlink_to(tmp_path / "precious")
    name = "local-llamacpp-cpu-tiny-q4_0"
    use(tmp_path, tool_folder, None, name)
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / ".env").read_text() == f"COMPOSE_PROFILES={name}\n"


def test_an_env_that_leads_nowhere_is_one_line(tmp_path: Path, tool_folder: Path) -> None:
    (tmp_path / ".env").symlink_to(tmp_path / "no" / "such")
    said = use(tmp_path, tool_folder, None, "local-llamacpp-cpu-tiny-q4_0")
    assert said == "error: .env cannot be made; mend its folder's permissions, or its link\n"


def test_a_private_env_stays_private_and_a_link_a_link(tmp_path: Path, tool_folder: Path) -> None:
    real = tmp_path / "elsewhere"
    real.write_text("HF_TOKEN=hf_Q7zx\nCOMPOSE_PROFILES=old")
    real.chmod(0o600)
    (tmp_path / ".env").symlink_to(real)
    name = "local-llamacpp-cpu-tiny-q4_0"
    before = os.umask(0)
    try:
        use(tmp_path, tool_folder, None, name)
    finally:
        os.umask(before)
    assert (tmp_path / ".env").is_symlink()
    assert real.read_text() == f"HF_TOKEN=hf_Q7zx\nCOMPOSE_PROFILES={name}\n"
    assert real.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / ".env.part").exists()


@pytest.mark.parametrize(
    "changed", [("8081}", "9000}"), ("gemma-rigs:11434.0.0-cpu", "gemma-rigs:1.0-cpu")]
)
def test_use_sees_a_compose_file_older_than_tpu_env(
    tmp_path: Path, tool_folder: Path, changed: tuple[str, str]
) -> None:
    name = "local-llamacpp-cpu-tiny-q4_0"
    text = (ROOT / "compose.yaml").read_text()
    assert changed[0] in text
    (tmp_path / "compose.yaml").write_text(text.replace(*changed))
    said = use(tmp_path, tool_folder, None, name)
    assert f"error: compose.yaml was made before {name}/tpu.env was changed" in said
    assert "run make compose" in said
    assert not (tmp_path / ".env").exists()


def test_an_image_of_a_private_checkout_can_be_read() -> None:
    """COPY keeps modes, and the image's user is not the one who cloned."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^RUN (find .*? -exec chmod a\+rX \{\} \+) ", text, re.MULTILINE)
    assert text.index("\nCOPY . /opt/gemma-rigs\n") < text.index(line)
    assert line.startswith("find /opt/gemma-rigs /opt/llama.cpp ")


def test_its_line_opens_what_is_closed(tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^RUN (find .*? -exec chmod a\+rX \{\} \+) ", text, re.MULTILINE)
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "a.py").touch(0o600)
    (tmp_path / "closed" / "run").touch(0o700)
    (tmp_path / "closed").chmod(0o700)
    here = line.replace("/opt/gemma-rigs", str(tmp_path)).replace("/opt/llama.cpp", "")
    subprocess.run(["sh", "-c", here], check=True)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "closed").iterdir()}
    assert modes == {"a.py": 0o644, "run": 0o755}
    assert (tmp_path / "closed").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("name", RIGS)
def test_targets_of_a_rig_with_a_card_run_in_the_image(name: str) -> None:
    rig_rules.runs_in_its_image(ROOT, name, loaded(name).backend == "cuda")


@pytest.mark.parametrize(
    ("tool", "files"),
    [
        ("hadolint", ["Dockerfile", "scripts/both.Dockerfile"]),
        ("compose-lint", ["compose.yaml"]),
        ("shellcheck", sorted(str(path) for path in (ROOT / "scripts").glob("*.sh"))),
    ],
)
def test_linters_find_nothing(tool: str, files: list[str]) -> None:
    program = Path(sys.executable).with_name(tool)
    done = subprocess.run([str(program), *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compiling_needs_no_more_than_the_dockerfile_copies(tmp_path: Path) -> None:
    """The compiling stage has these files and the standard library, nothing else."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    copied = re.findall(r"^COPY ((?:\S+\.py +)+)(\S+)/$", text, re.MULTILINE)
    assert {folder.split("/")[0] for _, folder in copied} == {"common", "scripts"}
    for line, folder in copied:
        (tmp_path / folder).mkdir(parents=True)
        for name in line.split():
            assert str(Path(name).parent) == folder
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-S", str(tmp_path / "scripts/image_engine.py"), "--help"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
