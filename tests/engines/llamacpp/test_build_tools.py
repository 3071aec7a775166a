"""CMake and Ninja for hosts that have none: real pip, with stand-ins made here."""

import os
import shutil
from pathlib import Path

import pytest

from common.engines.llamacpp import build_tools
from common.errors import RigError
from tests.helpers.tiny_wheel import script, wheel


@pytest.fixture
def bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No CMake and no Ninja on PATH; the package index is a folder."""
    wheels = tmp_path / "wheels"
    cmake = wheel(wheels, "cmake", {"cmake/data/bin/cmake": "#!/bin/sh\n"})
    ninja = wheel(wheels, "ninja", script("ninja", "#!/bin/sh\n"))
    (tmp_path / "build.lock").write_text(cmake + ninja)
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(build_tools, "LOCK", tmp_path / "build.lock")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return tmp_path


def test_what_the_host_lacks_is_brought_once(bare_host: Path) -> None:
    path = build_tools.search_path()
    assert path.endswith(os.pathsep + str(bare_host / "bin"))
    for name in build_tools.NAMES:
        found = shutil.which(name, path=path)
        assert found is not None
        assert found.startswith(str(bare_host / "cache" / "tools" / "build-"))
    shutil.rmtree(bare_host / "wheels")
    assert build_tools.search_path() == path


def test_the_hosts_own_are_used(bare_host: Path) -> None:
    for name in build_tools.NAMES:
        (bare_host / "bin" / name).write_text("#!/bin/sh\n")
        (bare_host / "bin" / name).chmod(0o755)
    assert build_tools.search_path() == str(bare_host / "bin")
    assert not (bare_host / "cache").exists()


def test_no_index_is_one_line_with_the_fix(bare_host: Path) -> None:
    shutil.rmtree(bare_host / "wheels")
    with pytest.raises(RigError, match="apt install cmake ninja-build") as caught:
        build_tools.search_path()
    assert "\n" not in str(caught.value)
    assert not list((bare_host / "cache").glob("tools/*"))
