"""Fixtures: a rig in a temporary folder, the fake llama-server, and the real engine."""

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from common import rig
from common.engines.llamacpp import build
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.host import alone
from common.known import chain, files
from common.rig import ROOT, Rig
from scripts import _cli, lists
from tests.helpers import ports
from tests.helpers.fake_hub import FakeHub

TINY = ROOT / "local-llamacpp-cpu-tiny-q4_0"
# A shell starts background jobs with Ctrl-C ignored, and their children inherit that; the tests
# that send Ctrl-C must find it as a terminal leaves it.
signal.signal(signal.SIGINT, signal.default_int_handler)


Run = Callable[..., tuple[int, str, str]]


# Files whose tests share what takes long to make: they stay on one worker.
TOGETHER = (
    "tests/compare/test_page.py",
    "tests/mcp/test_hostile.py",
    "tests/mcp/test_server.py",
    "tests/rigs/test_new_rig.py",
)
USERS_CACHE = os.environ.get("GEMMA_RIGS_CACHE", "")
NUMBERS = count()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test marked `last` comes after all others of its file, in whatever order those are."""
    for item in [item for item in items if item.get_closest_marker("last")]:
        items.remove(item)
        others = [place for place, other in enumerate(items) if other.path == item.path]
        items.insert(others[-1] + 1 if others else len(items), item)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """A test goes to the next free worker, alone or with its file."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file in TOGETHER else nodeid

    return Scheduling(config, log)


@pytest.fixture(autouse=True, scope="session")
def own_lock(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Measurements of tests are none of this host's."""
    os.environ[alone.VARIABLE] = str(tmp_path_factory.mktemp("lock") / "measuring.lock")


@pytest.fixture(autouse=True)
def clean_environment(
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """No setting of the caller's reaches a test, and no test what others leave in a cache: servers'
    logs, records of what runs. Only what takes many minutes to make comes from the user's."""
    for key in (*rig.KEYS, *lists.NOT_KEYS, "LLAMA_SERVER", "RUNNER", "HF_TOKEN"):
        monkeypatch.delenv(key, raising=False)
    if not any(map(request.node.get_closest_marker, ("browser", "converter", "docker"))):
        own = tmp_path_factory.getbasetemp() / f"cache-{next(NUMBERS)}"
        monkeypatch.setenv("GEMMA_RIGS_CACHE", str(own))


@pytest.fixture
def users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test of what the user may have fetched."""
    monkeypatch.setenv("GEMMA_RIGS_CACHE", USERS_CACHE)


@pytest.fixture
def free_port() -> Iterator[int]:
    with ports.claimed() as port:
        yield port


@pytest.fixture(scope="module")
def port_of_module() -> Iterator[int]:
    """For a server that all tests of a file use."""
    with ports.claimed() as port:
        yield port


@pytest.fixture(scope="session")
def pair_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    files.write_pair(folder, chain.make_chain())
    return folder


@pytest.fixture
def tiny(tmp_path: Path, free_port: int, pair_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The known-answer rig, copied, on a free port, with its models at hand."""
    folder = tmp_path / TINY.name
    folder.mkdir()
    shutil.copy(TINY / "tpu.env", folder)
    monkeypatch.setenv("MODELS_DIR", str(pair_folder))
    monkeypatch.setenv("PORT", str(free_port))
    return rig.load(folder)


@pytest.fixture(scope="session")
def fake_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake as a program that can be started like llama-server."""
    program = tmp_path_factory.mktemp("fake") / "llama-server"
    fake = ROOT / "tests" / "helpers" / "fake_llama_server.py"
    # A server is told little of the environment, so the settings lie beside the program.
    settings = f'[ ! -f "{program}.settings" ] || . "{program}.settings"'
    program.write_text(f'#!/bin/sh\n{settings}\nexec "{sys.executable}" -S "{fake}" "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def fake(fake_program: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Engine]]:
    """Call with FAKE_ settings to get an engine that behaves so."""
    beside = fake_program.with_name("llama-server.settings")

    def make(**settings: str) -> Engine:
        lines = [
            f"export FAKE_{key.upper()}={shlex.quote(value)}\n" for key, value in settings.items()
        ]
        beside.write_text("".join(lines))
        monkeypatch.setenv("LLAMA_SERVER", str(fake_program))
        return Engine(fake_program, {})

    yield make
    beside.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def real_engine() -> Engine:
    """The built llama-server. `make test` builds it first."""
    own = os.environ.pop("LLAMA_SERVER", None)
    try:
        return build.find(rig.load(TINY, environ={}))
    except RigError as error:
        pytest.fail(f"{error}", pytrace=False)
    finally:
        if own:
            os.environ["LLAMA_SERVER"] = own


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one file of 300,000 bytes; HF_ENDPOINT points to it."""
    with FakeHub(b"GGUF" + os.urandom(299_996)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def hub_rig(tmp_path: Path, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A rig whose model and drafter are on the fake hub, its models folder empty."""
    models = tmp_path / "models"
    models.mkdir()
    monkeypatch.setenv("MODELS_DIR", str(models))
    folder = tmp_path / "local-llamacpp-cpu-2b-q4_0"
    folder.mkdir()
    assert fake_hub.declared
    (folder / "tpu.env").write_text(f"""# a rig
BACKEND=cpu
# the model; no digest known
MODEL=target-2b-q4_0.gguf
MODEL_HF=someone/target-gguf
MODEL_HF_REVISION=
MODEL_SHA256=

# the drafter
SPEC_TYPE=draft-mtp
SPEC_DRAFT_MODEL=drafter-2b-q4_0.gguf
SPEC_DRAFT_HF=someone/drafter-gguf
SPEC_DRAFT_SHA256={fake_hub.declared[:16]}
SPEC_DRAFT_N_MAX=2
PORT=8081
CTX_SIZE=8192
""")
    return rig.load(folder)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a script's body for a rig as make does; returns exit code, stdout and stderr."""
    before = signal.getsignal(signal.SIGTERM)

    def run(body: Callable[[], int | None], of: Rig, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["script", str(of.folder), *words])
        with pytest.raises(SystemExit) as ended:
            _cli.main(body)
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    yield run
    signal.signal(signal.SIGTERM, before)
