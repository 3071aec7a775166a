"""serve, status and stop while a server starts, with keys, proxies and hostile surroundings."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.engines.llamacpp.build import Engine
from common.measure import progress
from common.rig import ROOT, Rig
from common.serving import identity, record
from scripts import serve


def line(name: str, rig: Rig) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / f"{name}.py"), str(rig.folder)]


def run(name: str, rig: Rig, **more: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    done = subprocess.run(line(name, rig), capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


@contextmanager
def serving(rig: Rig, **more: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        line("serve", rig),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **more},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def until(fits: Callable[[], object]) -> None:
    limit = time.monotonic() + 60
    while not fits():
        assert time.monotonic() < limit
        time.sleep(0.02)


def until_ready(rig: Rig) -> None:
    until(lambda: (found := record.find(rig)) and found.ready)


@pytest.fixture
def slow(fake: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A server that loads until this file is there."""
    go, program = tmp_path / "go", tmp_path / "slow"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    program.write_text(f'#!/bin/sh\n{wait}\nexec "{fake().server}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("LLAMA_SERVER", str(program))
    return go


def loading(rig: Rig) -> int:
    """The process of a server that is found while it loads."""
    until(lambda: (found := record.find(rig)) and found.pid)
    found = record.find(rig)
    assert found is not None
    assert not found.ready
    return found.pid


def test_stop_while_it_loads(tiny: Rig, slow: Path) -> None:
    with serving(tiny) as process:
        pid = loading(tiny)
        code, said = run("status", tiny)
        assert code == 3
        assert f"is starting: process {pid}" in said
        code, said = run("stop", tiny)
        assert (code, said.startswith(f"stopped process {pid}")) == (0, True)
        slow.touch()
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 143
        assert "error" not in out
    assert identity.group(pid) == []
    assert run("status", tiny)[0] == 3


def test_stop_before_there_is_a_server(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the model is fetched, from a hub that does not answer."""
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "none"))
    pair = ROOT / "scripts" / "serve.py"
    code = (
        "import sys, time; from scripts import _preparing, serve, _cli\n"
        "_preparing.prepare = lambda rig: time.sleep(60)\n"
        f"sys.argv = [{str(pair)!r}, {str(tiny.folder)!r}]; _cli.main(serve.body)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(pair)], cwd=ROOT) as process:
        until(lambda: record.find(tiny))
        assert run("stop", tiny)[1].startswith(f"stopped process {process.pid} ")
        assert process.wait() == 143
    assert record.find(tiny) is None


def test_stop_wakes_a_serve_that_is_suspended(tiny: Rig, fake: Callable[..., Engine]) -> None:
    with serving(tiny, LLAMA_SERVER=str(fake().server)) as process:
        until_ready(tiny)
        process.send_signal(signal.SIGSTOP)
        code, said = run("stop", tiny)
        assert code == 0
        assert "stopped process" in said
        assert process.wait(10) == 0
    assert record.find(tiny) is None


def test_a_suspended_serve_whose_server_has_died_can_be_stopped(
    tiny: Rig, fake: Callable[..., Engine]
) -> None:
    with serving(tiny, LLAMA_SERVER=str(fake().server)) as process:
        until_ready(tiny)
        found = record.find(tiny)
        assert found is not None
        process.send_signal(signal.SIGSTOP)
        os.kill(found.pid, signal.SIGKILL)
        until(lambda: not found.server())
        assert run("stop", tiny)[0] == 0
        process.wait(10)
    assert record.find(tiny) is None


def test_two_serves_while_one_loads(tiny: Rig, slow: Path) -> None:
    with serving(tiny):
        pid = loading(tiny)
        code, said = run("serve", tiny)
        assert (code, said) == (
            1,
            f"error: {tiny.name} is being started; stop it with make stop\n",
        )
        slow.touch()
        until_ready(tiny)
        assert run("status", tiny)[0] == 0
        assert f"served already at {tiny.url}" in run("serve", tiny)[1]
        assert run("stop", tiny)[1].startswith(f"stopped process {pid}")


@pytest.mark.parametrize(
    "variables",
    [
        {"http_proxy": "http://127.0.0.1:9", "NO_PROXY": "localhost"},
        {"ALL_PROXY": "socks5://127.0.0.1:9"},
        {"LLAMA_API_KEY": "first,second-Xq7z"},
        {"LLAMA_API_KEY": "Q7zx"},
    ],
)
@pytest.mark.engine
def test_proxies_and_keys(
    tiny: Rig, real_engine: Engine, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    monkeypatch.setenv("LLAMA_SERVER", str(real_engine.server))
    with serving(tiny, **variables):
        until_ready(tiny)
        code, said = run("status", tiny, **variables)
        assert code == 0, said
        assert "tokens generated: 16," in said
        if key := variables.get("LLAMA_API_KEY"):
            log = record.log_file(tiny).read_text()
            assert "keys loaded" in log
            assert key[-4:] not in log
            assert "refuses our key" in run("status", tiny, LLAMA_API_KEY="wrong")[1]


def test_the_script_that_is_killed_leaves_a_wrapped_server_that_stop_ends(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\n"{fake().server}" "$@"\nexit $?\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("LLAMA_SERVER", str(wrapper))
    with serving(tiny) as process:
        until_ready(tiny)
        process.kill()
        process.wait()
        found = record.find(tiny)
        assert found is not None
        assert run("stop", tiny)[0] == 0
        assert identity.group(found.pid) == []


def test_another_pid_namespace_does_not_lose_it(tiny: Rig, fake: Callable[..., Engine]) -> None:
    fake()
    inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("this host gives no namespaces")
    with serving(tiny):
        until_ready(tiny)
        for name, code in (("status", 3), ("stop", 0), ("serve", 1)):
            done = subprocess.run(
                [*inside, *line(name, tiny)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
            )
            assert done.returncode == code, done
        assert run("status", tiny)[0] == 0
        assert run("stop", tiny)[1].startswith("stopped process")


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">/dev/full 2>&1", ">/dev/full"])
def test_without_standard_files(tiny: Rig, fake: Callable[..., Engine], closed: str) -> None:
    """As a daemon starts it, and where they cannot be written."""
    fake()
    words = f'exec "$0" "$1" "$2" {closed}'
    done = subprocess.run(
        ["sh", "-c", words, *line("status", tiny)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    if closed == ">/dev/full":
        assert done.stderr.startswith("standard output cannot be written")


def test_a_daemon_serves_without_standard_files(tiny: Rig, fake: Callable[..., Engine]) -> None:
    fake()
    with subprocess.Popen(
        ["sh", "-c", 'exec "$0" "$1" "$2" <&- >&- 2>&-', *line("serve", tiny)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        until_ready(tiny)
        assert run("status", tiny)[0] == 0
        assert run("stop", tiny)[0] == 0
        assert process.wait() == 0


def test_a_cache_that_is_a_file(tiny: Rig, fake: Callable[..., Engine], tmp_path: Path) -> None:
    fake()
    (tmp_path / "file").touch()
    code, said = run("serve", tiny, GEMMA_RIGS_CACHE=str(tmp_path / "file"))
    assert code == 1
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_a_record_that_lies(tiny: Rig, fake: Callable[..., Engine]) -> None:
    """It names a process of somebody else, with its right start."""
    fake()
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as victim:
        found = identity.stat(victim.pid)
        assert found is not None
        place = identity.here()
        forged: dict[str, object] = {
            "host": place.host,
            "boot": place.boot,
            "namespace": place.namespace,
        }
        forged |= {"script": victim.pid, "script_ticks": found.ticks, "ticks": found.ticks}
        for ready in (True, False):
            more = {"pid": victim.pid, "ready": ready, "url": tiny.url, "log": "x"}
            record.folder().mkdir(parents=True, exist_ok=True)
            record.record_file(tiny).write_text(json.dumps({**forged, **more}))
            assert run("stop", tiny) == (0, f"{tiny.name} is not being served\n")
        assert victim.poll() is None
        victim.kill()


def test_a_job_in_a_container_does_not_fill_it_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llama-server").touch()
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    assert not serve.docker_keeps_the_log()
    monkeypatch.setattr(serve, "CONTAINER", tmp_path / "llama-server")
    assert serve.docker_keeps_the_log()
    monkeypatch.setenv(progress.VARIABLE, "/x")
    assert not serve.docker_keeps_the_log()
