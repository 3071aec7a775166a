"""The MCP server of a rig in its image, with a stand-in for docker."""

import os
import subprocess
from pathlib import Path

import pytest

from common.rig import ROOT

RIG = "local-llamacpp-cpu-tiny-q4_0"
HELLO = '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
# It keeps one container: what the client says comes back as what the server in it says.
DOCKER = """#!/bin/sh
echo "$@" >>"$STATE/calls"
case "$1" in
ps) [ ! -f "$STATE/up" ] || echo 0123 ;;
inspect) [ -f "$STATE/up" ] ;;
create) cat "$0" >/dev/null; echo 0123 ;;
start) touch "$STATE/up" ;;
cp) [ "$3" != - ] || cat >/dev/null ;;
exec) cat; exit "${EXIT:-0}" ;;
top) printf 'PID\\n1\\n2\\n'; [ ! -f "$STATE/busy" ] || echo 3 ;;
rm) rm -f "$STATE/up" ;;
*) echo "said by docker" ;;
esac
"""


class Docker:
    def __init__(self, folder: Path) -> None:
        self.state = folder
        self.program = folder / "bin" / "docker"
        self.program.parent.mkdir()
        self.program.write_text(DOCKER)
        self.program.chmod(0o755)

    def session(self, **more: str) -> "subprocess.CompletedProcess[str]":
        (self.state / "calls").write_text("")
        path = f"{self.program.parent}:{os.environ['PATH']}"
        return subprocess.run(
            [str(ROOT / "scripts" / "in_docker.sh"), "mcp_server.py", RIG],
            cwd=ROOT / RIG,
            env={"PATH": path, "HOME": str(self.state), "STATE": str(self.state), **more},
            input=HELLO,
            capture_output=True,
            text=True,
        )

    def called(self, verb: str) -> list[str]:
        lines = (self.state / "calls").read_text().splitlines()
        return [line for line in lines if line.startswith(f"{verb} ")]


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    return Docker(tmp_path)


def test_what_the_client_says_reaches_the_server_and_nothing_else_comes_back(
    docker: Docker,
) -> None:
    done = docker.session(PORT="9000", EXIT="3")
    assert (done.stdout, done.returncode) == (HELLO, 3), done.stderr
    (created,) = docker.called("create")
    assert "--publish 127.0.0.1:9000:9000 --env HOST=0.0.0.0 --entrypoint sleep" in created
    assert created.endswith(" infinity")
    (asked,) = docker.called("exec")
    assert asked.startswith(f"exec --interactive gemma-rigs-{RIG}-mcp /opt/venv/bin/python ")
    assert asked.endswith(f"/scripts/entry.py mcp_server {RIG}")


def test_the_container_stays_while_something_runs_in_it(docker: Docker) -> None:
    (docker.state / "busy").touch()
    docker.session()
    assert docker.called("rm") == []
    docker.session()  # the next session finds it
    assert docker.called("create") == docker.called("start") == []
    (docker.state / "busy").unlink()
    docker.session()
    assert docker.called("rm") == [f"rm --force --volumes gemma-rigs-{RIG}-mcp"]
