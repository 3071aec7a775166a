"""Pinning all digits of a commit: whom it asks, and what it refuses."""

import subprocess
from pathlib import Path

import pytest

from common import env_file, rig
from common.engines.llamacpp import commit, source
from common.errors import RigError
from common.rig import Rig
from tests.engines.llamacpp.test_build import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits; the second has a file more."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "--quiet", folder=folder)
    git("config", "uploadpack.allowFilter", "true", folder=folder)
    git("commit", "--quiet", "--allow-empty", "-m", "one", folder=folder)
    (folder / "file").write_text("a" * 1000)
    git("add", ".", folder=folder)
    git("commit", "--quiet", "-m", "two", folder=folder)
    return folder


def of(mine: Rig, repository: Path, digits: str) -> Rig:
    """The rig with these digits in its tpu.env, and this repository."""
    settings = {"LLAMA_CPP_COMMIT": digits, "LLAMA_CPP_REPOSITORY": f"file://{repository}"}
    env_file.rewrite(mine.folder / rig.FILE, settings)
    return rig.load(mine.folder)


def digits_in(mine: Rig) -> str | None:
    return rig.load(mine.folder).llama_cpp_commit


def test_the_repository_is_asked_for_all_digits(
    tiny: Rig, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    for name in ("HEAD", "HEAD~1"):
        whole = git("rev-parse", name, folder=repository)
        mine = of(tiny, repository, whole[:9])
        assert commit.pin(mine) == {"LLAMA_CPP_COMMIT": whole}
        assert digits_in(mine) == whole
        assert commit.pin(rig.load(mine.folder)) == {}
    assert list(scratch.iterdir()) == []


def test_nothing_but_commits_is_fetched(
    tiny: Rig, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clones = []
    ask = source._git

    def watched(arguments: list[str], origin: source.Source) -> str:
        said = ask(arguments, origin)
        if arguments[0] == "clone":
            line = ["cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"]
            clones.append(git(*line, folder=Path(arguments[-1])).split())
        return said

    monkeypatch.setattr(source, "_git", watched)
    whole = git("rev-parse", "HEAD", folder=repository)
    assert commit.pin(of(tiny, repository, whole[:9]))
    assert clones == [["commit", "commit"]]


def test_a_source_that_was_fetched_is_asked_first(tiny: Rig, repository: Path) -> None:
    whole = git("rev-parse", "HEAD", folder=repository)
    mine = of(tiny, repository, whole[:9])
    source.fetch(source.wanted(mine)[0])
    repository.rename(repository.with_name("gone"))
    assert commit.pin(mine) == {"LLAMA_CPP_COMMIT": whole}


def test_another_commit_is_never_written(tiny: Rig, repository: Path) -> None:
    """A tag may be named like a commit's first digits, and git takes the tag."""
    whole = git("rev-parse", "HEAD", folder=repository)
    git("tag", whole[:9], "HEAD~1", folder=repository)
    mine = of(tiny, repository, whole[:9])
    with pytest.raises(RigError, match="calls another commit") as caught:
        commit.pin(mine)
    assert str(caught.value).startswith(f"LLAMA_CPP_COMMIT stays {whole[:9]}: ")
    assert digits_in(mine) == whole[:9]
    mine = of(tiny, repository, "0" * 9)
    with pytest.raises(RigError, match="LLAMA_CPP_COMMIT stays 000000000: commit 000000000 of"):
        commit.pin(mine)
    assert digits_in(mine) == "0" * 9


def test_without_git(tiny: Rig, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = of(tiny, repository, git("rev-parse", "HEAD", folder=repository)[:9])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RigError, match=r"stays \w+: git is missing, so all .+; install git"):
        commit.pin(mine)


def test_a_rig_without_a_commit_has_nothing_to_pin(
    tiny: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", None)  # nobody is asked
    before = (tiny.folder / rig.FILE).read_bytes()
    assert commit.pin(tiny) == {}
    assert (tiny.folder / rig.FILE).read_bytes() == before


def test_a_commit_from_the_environment_is_not_pinned(
    tiny: Rig, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = of(tiny, repository, git("rev-parse", "HEAD", folder=repository)[:9])
    for key in ("LLAMA_CPP_COMMIT", "LLAMA_CPP_REPOSITORY"):
        with monkeypatch.context() as patch:
            patch.setenv(key, mine.settings()[key])
            with pytest.raises(RigError, match=f"{key} from the environment, and a pin belongs"):
                commit.pin(rig.load(mine.folder))
