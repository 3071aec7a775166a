"""The container's health check: a server that only answers /health is not healthy."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from common.engines.llamacpp.build import Engine
from common.rig import ROOT, Rig
from common.serving import client
from common.serving.process import Server
from scripts import health

FIRST = "docker-init\0--\0/opt/venv/bin/python\0/opt/gemma-rigs/scripts/entry.py\0serve\0"


def check(rig: Rig, **more: str) -> tuple[int, str]:
    """As Docker calls it: exit code and what it says."""
    environment = {"PATH": os.environ["PATH"], "PORT": str(rig.port), **more}
    line = [sys.executable, str(ROOT / "scripts" / "health.py")]
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


class Clock:
    """The check in this process, at a time of our choice."""

    def __init__(self, rig: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.killed: list[tuple[int, int]] = []
        self.first = folder / "first"
        self.first.mkdir()
        self.begin(FIRST, 7)
        monkeypatch.setattr(health, "FIRST", self.first)
        monkeypatch.setattr(health, "LIMIT_S", 0.5)
        monkeypatch.setattr(health, "clock", lambda: self.now)
        monkeypatch.setattr(health, "kill", lambda *how: self.killed.append(how))
        monkeypatch.setenv("GEMMA_RIGS_CACHE", str(folder / "cache"))
        monkeypatch.setenv("PORT", str(rig.port))

    def begin(self, line: str, ticks: int) -> None:
        (self.first / "cmdline").write_text(line)
        (self.first / "stat").write_text(f"1 (a) b) S {'0 ' * 18}{ticks} 0\n")

    def after(self, seconds: float) -> int:
        self.now += seconds
        return health.body()


@pytest.fixture
def clock(tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(tiny, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"http_proxy": "http://127.0.0.1:9"},
        {"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "socks5://127.0.0.1:9"},
        {"HOST": "0.0.0.0"},
        {"HOST": ""},
    ],
)
def test_a_server_that_works(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path, more: dict[str, str]
) -> None:
    with Server(tiny, fake(), tmp_path / "log"):
        assert check(tiny, **more) == (0, "")
    code, said = check(tiny, **more)
    assert (code, said.count("\n")) == (1, 1)


@pytest.mark.parametrize("host", ["::1", "::"])
def test_at_an_address_of_ipv6(tiny: Rig, fake: Callable[..., Engine], host: str) -> None:
    line = [str(fake().server), "--host", host, "--port", str(tiny.port)]
    with subprocess.Popen(line) as server:
        found = [check(tiny, HOST=host)]
        while found[-1][0] and len(found) < 100:
            found.append(check(tiny, HOST=host))
        server.kill()
    assert found[-1] == (0, "")


@pytest.mark.engine
@pytest.mark.parametrize("key", ["one", "one,two", "one\ntwo\n"])
def test_with_a_key(
    tiny: Rig, real_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", key)
    with Server(tiny, real_engine, tmp_path / "log"):
        assert check(tiny, LLAMA_API_KEY=key) == (0, "")
        assert check(tiny, LLAMA_API_KEY="wrong")[0] == 1
        secret = tmp_path / "api_key"
        secret.write_text(key)
        monkeypatch.delenv("LLAMA_API_KEY")
        monkeypatch.setattr(health, "SECRET", secret)
        monkeypatch.setenv("PORT", str(tiny.port))
        assert health.body() == 0


@pytest.mark.parametrize("fault", ["hang:2", "error:2", "cut:2", "die-in:2"])
def test_a_server_that_answers_health_only(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path, fault: str
) -> None:
    """The first request is the one that is made at its start."""
    with Server(tiny, fake(fault=fault), tmp_path / "log"):
        assert check(tiny)[0] == 1


def test_no_port_is_one_line(tiny: Rig) -> None:
    assert check(tiny, PORT="") == (
        1,
        "the server does not work: PORT is not set, so nobody knows where to ask it\n",
    )


def test_a_token_now_and_then(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path, clock: Clock
) -> None:
    with Server(tiny, fake(), tmp_path / "log") as server:
        made = [server.counters().predicted_tokens]
        for seconds in (0, 30, 30, 300, 30):
            assert clock.after(seconds) == 0
            made.append(server.counters().predicted_tokens)
    assert made == [made[0] + more for more in (0, 1, 1, 1, 2, 2)]


def test_one_that_hangs_later_is_unhealthy_then_the_container_ends(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path, clock: Clock
) -> None:
    with Server(tiny, fake(fault="hang:3"), tmp_path / "log"):
        assert [clock.after(seconds) for seconds in (0, 200, 99, 31)] == [0, 0, 0, 0]
        assert [clock.after(60), clock.after(60), clock.after(60)] == [0, 0, 1]
        assert clock.killed == []
        assert clock.after(600) == 1
        assert clock.killed == [(1, signal.SIGTERM)]


def test_a_busy_server_is_healthy_while_it_makes_progress(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    decodes = 5

    def get(path: str, content: object = None) -> str:
        assert path in ("/health", "/metrics")
        assert content is None, "a busy server is asked for nothing"
        told = f"llamacpp:n_decode_total {decodes}\nllamacpp:prompt_tokens_total 1\n"
        return told + "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n"

    monkeypatch.setattr(health, "get", get)
    for _ in range(5):
        decodes += 1
        assert clock.after(400) == 0
    assert [clock.after(30), clock.after(30), clock.after(60)] == [0, 0, 1]
    assert clock.after(600) == 1
    assert clock.killed == [(1, signal.SIGTERM)]


def test_before_it_was_ready_once_nothing_is_ended(clock: Clock) -> None:
    """The first load may take long."""
    assert [clock.after(400) for _ in range(5)] == [1] * 5
    assert clock.killed == []


@pytest.mark.parametrize("what", ["another start", "on a host", "damaged"])
def test_nothing_else_is_ended(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path, clock: Clock, what: str
) -> None:
    with Server(tiny, fake(), tmp_path / "log"):
        assert clock.after(0) == 0
    if what == "another start":
        clock.begin(FIRST, 8)
    elif what == "on a host":
        clock.begin("/sbin/init\0splash\0", 7)
    else:
        (tmp_path / "cache" / "health.json").write_text('{"worked": [1]}')
    assert clock.after(1000) == 1
    assert clock.killed == []


def test_its_body_is_one_that_the_client_would_send() -> None:
    mine = json.loads(json.dumps(client.chat("Hi", 1)))
    assert mine == health.BODY
