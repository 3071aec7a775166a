"""What a start must not take for its own: an earlier start's log, another's server."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.engines.llamacpp.build import Engine
from common.errors import RigError, StartError
from common.rig import Rig
from common.serving import identity, process
from common.serving.process import Server

ON_CARD = "load_tensors: offloaded 36/36 layers to GPU\nload_tensors: CUDA0 model buffer size = 9\n"
OFF_CARD = ON_CARD.replace("36/36", "20/36")
NO_MEMORY = "cudaMalloc failed: out of memory\n"
SHARING = """
import http.server, socket, sys
class Sharing(http.server.ThreadingHTTPServer):
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
Sharing(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def program(folder: Path, script: str) -> Engine:
    """An engine that is this shell script."""
    file = folder / "own-llama-server"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return Engine(file, {})


def on_card(tiny: Rig) -> Rig:
    return tiny.variant({"BACKEND": "cuda", "GPU_NAME": "RTX_3050"})


def started(rig: Rig, engine: Engine, log: Path) -> str:
    """What is said of a start that must fail, or nothing of a good one; nothing stays behind."""
    running = Server(rig, engine, log, measuring=True)
    try:
        with running:
            return ""
    except StartError as error:
        return str(error)
    finally:
        assert running.process is None or identity.group(running.process.pid) == []


def test_an_earlier_start_on_the_card_does_not_vouch_for_this_one(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(ON_CARD)
    said = started(on_card(tiny), fake(), log)
    assert "runs on the CPU, not on the card" in said
    assert "offloaded" not in said
    assert log.read_text().startswith(ON_CARD)  # it is kept all the same


def test_an_earlier_start_off_the_card_does_not_condemn_this_one(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(OFF_CARD)
    engine = program(tmp_path, f'printf "{ON_CARD}"; exec "{fake().server}" "$@"')
    assert started(on_card(tiny), engine, log) == ""


def test_no_advice_from_an_earlier_start(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(NO_MEMORY)
    said = started(tiny, fake(fault="exit"), log)
    assert "cannot load the model" in said
    assert "memory" not in said


def test_two_starts_on_one_log_are_judged_apart(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path
) -> None:
    log, once = tmp_path / "log", tmp_path / "once"
    script = f'[ -e {once} ] || printf "{ON_CARD}"; touch {once}; exec "{fake().server}" "$@"'
    engine = program(tmp_path, script)
    assert started(on_card(tiny), engine, log) == ""
    assert "not on the card" in started(on_card(tiny), engine, log)


@contextmanager
def stranger(rig: Rig, code: str = SHARING) -> Iterator[None]:
    """Another server that answers on the rig's port."""
    with subprocess.Popen([sys.executable, "-c", code, "--port", str(rig.port)]) as other:
        try:
            limit = time.monotonic() + 30
            while not _answers(rig) and time.monotonic() < limit:
                time.sleep(0.02)
            yield
        finally:
            other.kill()


def _answers(rig: Rig) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((rig.host, rig.port)) == 0


def test_a_stranger_that_took_the_port_meanwhile(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "check_port", lambda _rig: None)
    with stranger(tiny):
        said = started(tiny, program(tmp_path, "exec sleep 60"), tmp_path / "log")
    assert f"port {tiny.port} on 127.0.0.1 is not answered by the llama-server" in said


def test_a_stranger_that_shares_the_port(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "check_port", lambda _rig: None)
    (tmp_path / "sharing.py").write_text(SHARING)
    engine = program(tmp_path, f'exec {sys.executable} {tmp_path / "sharing.py"} "$@"')
    with stranger(tiny):
        running = Server(tiny, engine, tmp_path / "log")
        monkeypatch.setattr(Server, "_wait_ready", _wait_bound)
        with pytest.raises(StartError, match="is answered by another program too"):
            running.start()
        running.stop()


def _wait_bound(self: Server, _begin: float) -> None:
    """Until its own socket is there, whoever answers."""
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        try:
            self.check_ours()
        except RigError as error:
            if "too" in str(error):
                return
        time.sleep(0.02)


@pytest.mark.engine
def test_the_real_server_owns_its_port_until_it_ends(
    tiny: Rig, real_engine: Engine, tmp_path: Path
) -> None:
    with Server(tiny, real_engine, tmp_path / "log") as running:
        running.check_ours()
        assert running.process is not None
        running.process.kill()
        running.process.wait()
        with pytest.raises(RigError, match="llama-server has ended"):
            running.check_ours()


def test_a_wrapper_is_ended_with_its_child(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path
) -> None:
    engine = program(tmp_path, f'"{fake().server}" "$@"\nexit $?')
    with Server(tiny, engine, tmp_path / "log") as running:
        running.check_ours()  # a wrapper's child counts
        assert running.process is not None
        assert len(identity.group(running.process.pid)) == 2
    assert identity.group(running.process.pid) == []


def test_a_wrapper_that_died_leaves_no_child(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path
) -> None:
    engine = program(tmp_path, f'"{fake().server}" "$@"\nexit $?')
    with Server(tiny, engine, tmp_path / "log") as running:
        assert running.process is not None
        running.process.kill()
        running.process.wait()
        assert len(identity.group(running.process.pid)) == 1
    assert identity.group(running.process.pid) == []


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01\x01" + b"\0" * 57, None])
def test_a_program_that_cannot_run_is_one_line(
    tiny: Rig, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "llama-server"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
        file.chmod(0o755)
    with pytest.raises(RigError, match=r"llama-server cannot be started \(.*make engine") as said:
        Server(tiny, Engine(file, {}), tmp_path / "log").start()
    assert "\n" not in str(said.value)


def test_a_log_that_cannot_be_written_is_one_line(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RigError, match=r"cannot be written \(.*GEMMA_RIGS_CACHE") as said:
        Server(tiny, fake(), tmp_path / "file" / "log").start()
    assert "\n" not in str(said.value)


def test_a_death_without_a_log(tiny: Rig, fake: Callable[..., Engine], tmp_path: Path) -> None:
    with Server(tiny, fake(), tmp_path / "log") as running:
        running.log.unlink()
        assert str(running.death("it ended")).endswith("is empty or gone")


@pytest.mark.parametrize(
    ("end", "advised"),
    [("kill -9 $$", False), ("kill -15 $$", False), ("exit 137", False), ("exit 1", True)],
)
def test_a_killed_server_gets_no_advice(tiny: Rig, tmp_path: Path, end: str, advised: bool) -> None:
    said = started(tiny, program(tmp_path, f'printf "{NO_MEMORY}"; {end}'), tmp_path / "log")
    assert "llama-server ended at start" in said
    assert ("not enough memory" in said) is advised


@pytest.mark.parametrize(("code", "word"), [(-9, "SIGKILL"), (143, "SIGTERM"), (3, "exit code 3")])
def test_how_it_ended(code: int, word: str) -> None:
    assert word in process.how(code)


def test_the_log_on_a_host_is_bounded_and_private(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LOG_LIMIT", 4000)
    monkeypatch.setattr(process, "LOOK_S", 0.01)
    before = os.umask(0)
    try:
        line = "echo line $i of a prompt; i=$((i+1)); sleep 0.002"
        talks = f"i=0; while [ $i -lt 300 ]; do {line}; done; kill $$"
        engine = program(tmp_path, f'({talks}) & exec "{fake().server}" "$@"')
        with Server(tiny, engine, tmp_path / "log") as running:
            running.follow()
    finally:
        os.umask(before)
    earlier = tmp_path / "log.1"
    assert 0 < earlier.stat().st_size <= 4000
    assert running.log.stat().st_size < 300 * len("line 100 of a prompt\n")
    assert {file.stat().st_mode & 0o777 for file in (running.log, earlier)} == {0o600}


def test_a_deleted_log_does_not_end_serving(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LOG_LIMIT", 10)
    monkeypatch.setattr(process, "LOOK_S", 0.01)
    with Server(tiny, fake(), tmp_path / "log") as running:
        assert running.process is not None
        end = f"rm {running.log}; sleep 0.3; kill -9 {running.process.pid}"
        subprocess.Popen(["sh", "-c", end])
        assert running.follow() == -signal.SIGKILL
