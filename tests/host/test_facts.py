"""The commit that measured: this project's own, or none."""

import shutil
import subprocess
from pathlib import Path

import pytest

from common.host import facts
from common.rig import ROOT

NOTHING = {"commit": None, "dirty": None}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A clean repository."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "tpu.env").write_text("PORT=1\n")
    for command in ("init --quiet", "add .", "commit --quiet -m one"):
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        subprocess.run(["git", "-C", str(folder), *identity, *command.split()], check=True)
    return folder


def test_a_project_unpacked_in_another_repository_has_no_commit(repository: Path) -> None:
    assert facts.harness(repository)["dirty"] is False
    (repository / "unpacked").mkdir()
    assert facts.harness(repository / "unpacked") == NOTHING


@pytest.mark.parametrize("variable", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"])
def test_variables_that_turn_git_elsewhere_do_not_count(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    before = facts.harness(repository)
    monkeypatch.setenv(variable, str(repository / ".git"))
    assert facts.harness(plain) == NOTHING
    assert facts.harness(repository) == before


def test_a_status_that_fails_is_never_clean(repository: Path) -> None:
    (repository / ".git" / "index").write_bytes(b"damaged")
    found = facts.harness(repository)
    assert found["commit"] is not None
    assert found["dirty"] is None


def test_through_a_link_it_is_the_same(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repository)
    assert facts.harness(tmp_path / "link") == facts.harness(repository)


def test_what_the_image_is_told_is_a_commit_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_COMMIT", "a" * 40)
    assert facts.harness() == {"commit": "a" * 40, "dirty": None}
    for word, dirty in (("0", False), ("1", True)):
        monkeypatch.setenv("HARNESS_DIRTY", word)
        assert facts.harness() == {"commit": "a" * 40, "dirty": dirty}
    monkeypatch.setenv("HARNESS_COMMIT", "main; ls")
    assert facts.harness() == NOTHING


def image_script_says(root: Path) -> str:
    """The last line of what the script tells the image of the tree."""
    shell = Path(shutil.which("sh") or "sh")
    script = (ROOT / "scripts" / "in_docker.sh").read_text()
    body = script[script.index("own_git()") : script.index("digest()")]
    command = [str(shell), "-c", f"root={root}\n{body}\nharness"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip().rpartition("\n")[2]


def test_the_image_script_says_the_same(repository: Path) -> None:
    for folder, said in ((repository, "HARNESS_DIRTY=0"), (repository / "unpacked", "")):
        folder.mkdir(exist_ok=True)
        assert image_script_says(folder) == said


@pytest.mark.parametrize(
    ("place", "dirty"),
    [
        ("local-llamacpp-l4-2b-q4_0/tpu.env", False),
        ("README.md", False),
        ("compose.yaml", False),
        ("common/compose.yaml", True),
        ("docs/README.md", True),
        ("common/local-x/rig.py", True),
        ("Makefile", True),
    ],
)
def test_what_new_rig_writes_is_no_code(repository: Path, place: str, dirty: bool) -> None:
    (repository / place).parent.mkdir(parents=True, exist_ok=True)
    (repository / place).write_text("new\n")
    assert facts.harness(repository)["dirty"] is dirty
    assert image_script_says(repository) == f"HARNESS_DIRTY={int(dirty)}"


def test_what_decides_speed_is_noted_and_settings_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("CUDA_VISIBLE_DEVICES", "GGML_CUDA_X", "OMP_NUM_THREADS", "CUDA_VERSION", "MINE"):
        monkeypatch.setenv(key, "1")
    noted = facts.environment()
    assert {"CUDA_VISIBLE_DEVICES", "GGML_CUDA_X", "OMP_NUM_THREADS"} <= noted.keys()
    assert noted.keys().isdisjoint({"CUDA_VERSION", "MINE"})
