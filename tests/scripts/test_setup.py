"""Set-up: .venv from a lock file, with real uv and real pip, and wheels made here."""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common import packages, pip, uv
from common.errors import RigError
from common.rig import ROOT
from tests.helpers import rig_rules
from tests.helpers.limits import HANG_S
from tests.helpers.tiny_wheel import script, wheel

pytestmark = pytest.mark.usefixtures("users_cache")  # for the uv that set-up has brought
MODULES = (
    "__init__",
    "atomic",
    "digest",
    "errors",
    "lock",
    "packages",
    "pip",
    "places",
    "tool_folder",
    "uv",
)
OWN = ("PIP_", "UV_", "MAKE", "BASE_PYTHON", "VIRTUAL_ENV")


class Project:
    """A project folder with tiny locks, and the environment its set-up runs in."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "project"
        for name in MODULES:
            self._copy(f"common/{name}.py")
        self._copy("scripts/setup.py")
        self.one = wheel(home / "wheels", "one", {"one.py": ""})
        self.two = wheel(home / "wheels", "two", {"two.py": ""})
        self.lock("requirements.lock", self.one)
        self.lock("requirements-dev.lock", self.one + self.two)
        broken = script("uv", "#!/bin/sh\necho 'error: this uv is broken' >&2\nexit 2\n")
        self.lock("requirements-uv.lock", wheel(home / "wheels", "uv", broken))
        clean = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
        self.environment = {
            **clean,
            "HOME": str(home),
            "PATH": str(home / "bin"),  # no uv of this host
            "GEMMA_RIGS_CACHE": str(home / "cache"),
            "UV_CACHE_DIR": str(home / "uv-cache"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(home / "wheels"),
        }
        (home / "bin").mkdir()
        for tool in ("sleep", "touch"):
            (home / "bin" / tool).symlink_to(shutil.which(tool) or "none")

    def _copy(self, name: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, self.root / name)

    def lock(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def uv(self, before: str = "") -> None:
        """Put the real uv on PATH, with a shell line before each call."""
        program = uv.find(ROOT / packages.UV_LOCK)
        if program is None:
            pytest.skip("no uv on this host (set-up has used pip)")
        wrapper = self.home / "bin" / "uv"
        wrapper.write_text(f'#!/bin/sh\n{before}\nexec "{program}" "$@"\n')
        wrapper.chmod(0o755)

    def start(self, kind: str = "runtime", **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.root / "scripts" / "setup.py"), kind],
            env={**self.environment, **environment},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def set_up(self, kind: str = "runtime", **environment: str) -> tuple[int, str, str]:
        with self.start(kind, **environment) as process:
            out, err = process.communicate(timeout=HANG_S)
        return process.returncode, out, err

    def has(self, module: str) -> bool:
        python = self.root / ".venv" / "bin" / "python"
        return (
            subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_installs_once_and_then_says_nothing(project: Project) -> None:
    project.uv()
    code, out, err = project.set_up()
    assert (code, err) == (0, "")
    assert out.startswith("set-up: installing Python packages into .venv")
    assert project.has("one")
    assert project.has("common.errors")  # from the project's folder, by gemma-rigs.pth
    os.utime(project.root / "requirements.lock")
    project.uv("exit 9")
    assert project.set_up() == (0, "", "")


def test_a_changed_lock_is_installed(project: Project) -> None:
    project.uv()
    project.set_up()
    assert not project.has("two")
    project.lock("requirements.lock", project.one + project.two)
    assert project.set_up()[0] == 0
    assert project.has("two")


def test_dev_holds_runtime(project: Project) -> None:
    project.uv()
    project.set_up()
    assert project.set_up("dev")[1] != ""
    assert project.has("two")
    assert project.set_up("runtime") == (0, "", "")
    assert project.set_up("dev") == (0, "", "")


def test_an_interrupted_set_up_is_made_anew(project: Project) -> None:
    project.uv('test "$1" = pip && touch "$HOME/installing" && sleep 60')
    with project.start() as process:
        wait_for(project.home / "installing")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    half = project.root / ".venv" / "half-installed"
    half.touch()
    project.uv()
    assert project.set_up()[0] == 0
    assert project.has("one")
    assert not half.exists()


def test_two_at_once_do_not_meet(project: Project) -> None:
    project.uv('echo "$1" >>"$HOME/calls"; touch "$HOME/installing"; sleep 0.5')
    with project.start() as first:
        wait_for(project.home / "installing")
        with project.start() as second:
            said = [process.communicate(timeout=HANG_S) for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert said[1] == (
        "set-up: another make is installing the Python packages; waiting for it\n",
        "",
    )
    assert (project.home / "calls").read_text().split() == ["venv", "pip"]


def test_without_uv_it_is_brought_and_where_it_fails_pip_installs(project: Project) -> None:
    code, out, err = project.set_up()
    assert (code, err) == (0, "")
    assert len(list((project.home / "cache" / "tools").glob("uv-*/bin/uv"))) == 1
    assert "uv failed (error: this uv is broken); pip installs instead" in out
    assert project.has("one")
    assert project.has("pip")


def test_another_file_than_the_locks_is_refused_by_both(project: Project) -> None:
    project.uv()
    project.lock("requirements.lock", f"one==1.0 --hash=sha256:{'0' * 64}\n")
    code, out, err = project.set_up()
    assert code == 1
    assert "uv failed (" in out
    assert err.startswith("error: the Python packages cannot be installed (")
    assert "HASHES" in err
    assert err.count("\n") == 1
    assert not project.has("one")


def test_no_uv_to_be_had_is_one_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    lock = project.root / packages.UV_LOCK
    lock.write_text(f"uv==9.9 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(uv.UvError, match=r"no uv .* found for uv==9\.9\)$"):
        uv.bring(Path(sys.executable), lock)
    assert uv.find(lock) is None


def test_another_python_that_is_asked_for_makes_it_anew(project: Project) -> None:
    project.uv()
    project.set_up()
    record = project.root / ".venv" / packages.RECORD
    said = json.loads(record.read_text())
    first_choice = project.home / "first-choice"
    first_choice.write_text("#!/bin/sh\necho handed over\n")
    first_choice.chmod(0o755)
    record.write_text(json.dumps({**said, "python": "cpython-39", "base": str(first_choice)}))
    assert project.set_up()[1] == "handed over\n"
    assert project.set_up(BASE_PYTHON="python3")[1].startswith("set-up: installing")
    assert json.loads(record.read_text()) == said


@pytest.mark.parametrize("kind", ["a folder", "no program", "a number", "gone"])
def test_a_first_choice_that_cannot_be_run_is_made_anew(project: Project, kind: str) -> None:
    project.uv()
    project.set_up()
    record = project.root / ".venv" / packages.RECORD
    said = json.loads(record.read_text())
    first_choice = project.home / "first-choice"
    if kind == "a folder":
        first_choice.mkdir()
    elif kind == "no program":
        first_choice.write_bytes(b"\x7fELF")
        first_choice.chmod(0o755)
    base = 7 if kind == "a number" else str(first_choice)
    record.write_text(json.dumps({**said, "python": "cpython-39", "base": base}))
    code, _out, err = project.set_up()
    assert (code, err) == (0, "")


@pytest.mark.parametrize("record", ["", "null", "7", "[" * 100_000, {"locks": None}, {"locks": []}])
def test_an_odd_record_of_what_is_installed_is_made_anew(project: Project, record: object) -> None:
    project.uv()
    project.set_up()
    path = project.root / ".venv" / packages.RECORD
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | record) if isinstance(record, dict) else str(record))
    code, out, err = project.set_up()
    assert (code, err) == (0, "")
    assert out.startswith("set-up: installing")
    assert json.loads(path.read_text()) == said


def test_a_lock_file_that_is_gone_is_one_line(project: Project) -> None:
    project.uv()
    project.set_up()
    (project.root / "requirements.lock").unlink()
    code, _out, err = project.set_up()
    assert code == 1
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "requirements.lock" in err


def test_an_old_python_gets_one_line() -> None:
    text = (ROOT / "scripts" / "setup.py").read_text()
    ast.parse(text, feature_version=(3, 6))
    assert "from __future__" not in text  # annotations came with 3.7
    old = (
        "import runpy, sys; sys.version_info = (3, 9, 18); sys.argv[1:] = ['dev']; "
        f"runpy.run_path({str(ROOT / 'scripts' / 'setup.py')!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", old],
        capture_output=True,
        text=True,
        env={**os.environ, "BASE_PYTHON": "python3"},
    )
    assert done.returncode == 1
    assert done.stderr == (
        "Python 3.10 or newer is needed; name one: make setup BASE_PYTHON=python3.12\n"
    )


def test_no_ensurepip_is_one_line_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def debian(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        said = "The virtual environment was not created successfully because ensurepip is not\n"
        return subprocess.CompletedProcess(command, 1, said, "")

    monkeypatch.setattr(subprocess, "run", debian)
    with pytest.raises(RigError, match="apt install python3-venv") as caught:
        packages._standard_venv(tmp_path / ".venv")
    assert "\n" not in str(caught.value)


def test_uv_gets_pips_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "SSL_"))]:
        monkeypatch.delenv(name)
    configuration = tmp_path / "pip.conf"
    configuration.write_text(
        "[global]\nindex_url = https://mirror.example/simple\ncert = /etc/mine.pem\n"
        "extra-index-url =\n  file:///local/simple\n  https://more.example/simple\n"
        "[install]\ntrusted-host = mirror.example\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path} {tmp_path / 'none'}")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    given = uv.environment()
    assert given == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://more.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": str(tmp_path),
        "UV_INSECURE_HOST": "mirror.example",
        "SSL_CERT_FILE": "/etc/mine.pem",
    }
    monkeypatch.setenv("UV_INDEX_URL", "https://own.example/simple")
    monkeypatch.setenv("PIP_CERT", "/etc/other.pem")
    given = uv.environment()
    assert "UV_DEFAULT_INDEX" not in given
    assert given["SSL_CERT_FILE"] == "/etc/other.pem"
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert "UV_INDEX" not in uv.environment()


def test_the_reason_is_found_in_an_installers_words() -> None:
    drawn = "  \N{MULTIPLICATION SIGN} Failed to download `one`\n  ╰─▶ Hash mismatch for `one`\n"
    assert pip.last_error(drawn) == "Hash mismatch for `one`"
    assert pip.last_error("WARNING: x\nERROR: a\nERROR: b\n\n") == "b"
    assert pip.last_error("") == "no reason given"


def test_the_locks_agree() -> None:
    runtime, dev, tools = (
        set(re.findall(r"^\S+==\S+", (ROOT / name).read_text(), re.MULTILINE))
        for name in (*packages.LOCKS.values(), packages.UV_LOCK)
    )
    assert runtime < dev
    assert any(
        pin.startswith("pip==") for pin in runtime
    )  # common/engines/llamacpp/source.py runs it
    assert not any(pin.startswith(("cmake==", "ninja==")) for pin in dev)
    assert len(tools) == 1


def test_targets_ask_for_the_packages_they_need() -> None:
    def needs(*arguments: str) -> list[str]:
        code, out, err = rig_rules.make(ROOT, "-n", *arguments)
        assert code == 0, err
        return re.findall(r"scripts/setup\.py (\w+)", out)

    assert needs("setup") == needs("test") == needs("lint") == ["dev"]
    assert needs("demo") == needs("doctor") == needs("compare") == ["runtime"]
    rig = ("-C", "local-llamacpp-cpu-tiny-q4_0", "speed")
    assert needs(*rig) == ["runtime"]
    assert needs(*rig, "RUNNER=docker") == []


def test_demo_says_first_what_it_will_do() -> None:
    _code, out, _err = rig_rules.make(ROOT, "-n", "demo")
    assert out.startswith('echo "demo: sets up Python packages')


def test_make_test_hands_its_words_to_pytest(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PYTEST_ADDOPTS|$*"\n')
    python.chmod(0o755)
    stands = [f"PYTHON={python}", f"BASE_PYTHON={python}", "WORKERS=3"]
    words = "-k 'setup and not uv'"
    _code, out, _err = rig_rules.make(ROOT, "test", f"PYTEST={words}", *stands)
    assert f"{words} |-m pytest -n 3\n" in out
    _code, out, _err = rig_rules.make(ROOT, "test-random", f"PYTEST={words}", *stands)
    assert f"{words} -p randomly|-m pytest -n 3\n" in out


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.01)
