"""docker compose serves the known-answer rig: hardened, watched, restarted, stopped."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import openai
import pytest
import requests
from docker import DockerClient
from docker.errors import NotFound
from docker.models.containers import Container

from common.known import chain as pair
from common.rig import ROOT
from common.serving import client
from tests.docker.conftest import TINY, run

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2700)]

PROMPT = "Name three rivers."
TOKENS = 96
KILL_SERVER = """
import psutil
for process in psutil.process_iter(["name"]):
    if process.info["name"] == "llama-server":
        process.kill()
"""


@dataclass
class Stack:
    """The served rig."""

    engine: DockerClient
    settings: dict[str, str]
    health: list[str] = field(default_factory=list)
    """each health state seen while coming up, once per change"""
    healthy_s: float = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings['PORT']}"

    @property
    def container(self) -> Container:
        name = f"{self.settings['COMPOSE_PROJECT_NAME']}-{TINY}-1"
        return self.engine.containers.get(name)

    def compose(self, *arguments: str) -> list[str]:
        return ["docker", "compose", "--profile", TINY, *arguments]

    def inside(self, *command: str) -> tuple[int, str]:
        done = self.container.exec_run(list(command))
        assert isinstance(done.output, bytes)
        return int(done.exit_code or 0), done.output.decode()


@pytest.fixture(scope="module")
def stack(
    engine: DockerClient, settings: dict[str, str], image: str, port_of_module: int
) -> Iterator[Stack]:
    stack = Stack(engine, {**settings, "IMAGE": image, "PORT": str(port_of_module)})
    begin = time.monotonic()
    up = subprocess.Popen(
        stack.compose("up", "--no-build", "--wait"),
        cwd=ROOT,
        env=stack.settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    started = None
    try:
        while up.poll() is None:
            state = _health(stack)
            if state and (not stack.health or stack.health[-1] != state):
                stack.health.append(state)
                started = started or time.monotonic()
            time.sleep(0.05)
        text = up.communicate()[0]
        assert up.returncode == 0, text + stack.container.logs().decode()
        stack.health += [] if stack.health[-1:] == ["healthy"] else [str(_health(stack))]
        stack.healthy_s = time.monotonic() - (started or begin)
        print(f"\nhealthy {stack.healthy_s:.1f} s after the server's container was made")
        yield stack
    finally:
        run(stack.compose("down", "--volumes", "--timeout", "10"), stack.settings)


def _health(stack: Stack) -> str | None:
    try:
        container = stack.container
    except NotFound:  # not made yet
        return None
    health = container.attrs["State"].get("Health")
    return str(health["Status"]) if container.status == "running" and health else None


def wait_for(what: str, true: Callable[[], bool], limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.05)


def test_health_goes_from_starting_to_healthy(stack: Stack) -> None:
    assert stack.health == ["starting", "healthy"]


def test_chat_gives_the_known_reply(stack: Stack) -> None:
    chain = pair.make_chain()
    asker = openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none")
    reply = asker.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": PROMPT}],
        max_tokens=TOKENS,
        temperature=0,
    )
    assert reply.choices[0].message.content == chain.text(chain.reply(len(PROMPT), TOKENS))


def test_streamed_chat_drafts_and_keeps_what_the_pair_must(stack: Stack) -> None:
    chain = pair.make_chain()
    body = client.chat(PROMPT, TOKENS, temperature=0)
    reply = client.ask(stack.url, [body], 60)[0]
    assert reply.error is None
    assert reply.text_chunks > 1
    assert reply.content == chain.text(chain.reply(len(PROMPT), TOKENS))
    expected = pair.expect(chain, len(PROMPT), TOKENS, 2)
    assert (reply.draft_n, reply.draft_n_accepted) == (expected.drafted, expected.accepted)


def test_the_root_is_the_chat_page(stack: Stack) -> None:
    reply = requests.get(f"{stack.url}/", timeout=5)
    assert reply.status_code == 200
    assert "text/html" in reply.headers["Content-Type"]
    bundle = re.search(r"_app/immutable/bundle\.[\w-]+\.js", reply.text)
    assert bundle is not None
    assert len(requests.get(f"{stack.url}/{bundle[0]}", timeout=5).text) > 100_000
    manifest = requests.get(f"{stack.url}/manifest.webmanifest", timeout=5).json()
    assert "llama" in manifest["name"]
    _code, text = stack.inside("cat", "/opt/llama.cpp/bin/engine.json")
    assert re.fullmatch(r"[0-9a-f]{64}", json.loads(text)["page"])
    assert stack.inside("sh", "-c", "command -v node npm") == (127, "")  # only what was built


def test_runs_as_a_user_without_rights(stack: Stack) -> None:
    assert stack.inside("id", "-u") == (0, "10001\n")
    _code, status = stack.inside("cat", "/proc/1/status")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(lines["CapEff"], 16) == int(lines["CapBnd"], 16) == 0
    assert lines["NoNewPrivs"] == "1"


@pytest.mark.parametrize("place", ["/opt/gemma-rigs/x", "/models/x", "/etc/x"])
def test_cannot_write_outside_its_scratch_space(stack: Stack, place: str) -> None:
    code, output = stack.inside("touch", place)
    assert code != 0
    assert "Read-only file system" in output
    assert stack.inside("touch", "/tmp/x")[0] == 0  # noqa: S108 (in the container)


def test_limits_are_in_force(stack: Stack) -> None:
    config = stack.container.attrs["HostConfig"]
    assert config["Memory"] == 1 << 30
    assert config["PidsLimit"] == 512
    assert config["LogConfig"]["Config"] == {"max-file": "3", "max-size": "10m"}
    assert config["Privileged"] is False


def test_listens_on_loopback_only(stack: Stack) -> None:
    # /proc/net/tcp: address and port in hex, state 0A is listening.
    listening = [
        fields[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if (fields := line.split())[3] == "0A"
    ]
    port = f"{int(stack.settings['PORT']):04X}"
    mine = [
        address for address, _, number in (a.partition(":") for a in listening) if number == port
    ]
    assert mine == ["0100007F"]


def test_log_reaches_docker(stack: Stack) -> None:
    log = stack.container.logs().decode()
    assert "drafter: works" in log
    assert "/v1/chat/completions" in log or "slot" in log


def test_comes_back_after_its_server_was_killed(stack: Stack) -> None:
    before = int(stack.container.attrs["RestartCount"])
    assert _health(stack) == "healthy"
    stack.inside("/opt/venv/bin/python", "-c", KILL_SERVER)
    wait_for("restart", lambda: stack.container.attrs["RestartCount"] == before + 1)
    seen = []

    def healthy() -> bool:
        seen.append(_health(stack))
        return seen[-1] == "healthy"

    wait_for("healthy again", healthy)
    assert "starting" in seen
    assert requests.get(f"{stack.url}/health", timeout=5).status_code == 200


def test_asks_for_the_key_of_the_secret_file(stack: Stack, tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("open-sesame\n")
    secret.chmod(0o644)
    stack.settings["API_KEY_FILE"] = str(secret)
    try:
        run(stack.compose("up", "--no-build", "--wait"), stack.settings)
        body = client.chat(PROMPT, 8)
        url = f"{stack.url}/v1/chat/completions"
        assert requests.post(url, json=body, timeout=30).status_code == 401
        headers = {"Authorization": "Bearer open-sesame"}
        assert requests.post(url, json=body, headers=headers, timeout=30).status_code == 200
        assert "open-sesame" not in stack.container.logs().decode()
        assert "open-sesame" not in str(stack.container.attrs)
    finally:
        del stack.settings["API_KEY_FILE"]


def test_stops_cleanly_in_time(stack: Stack) -> None:
    container = stack.container
    begin = time.monotonic()
    run(stack.compose("stop"), stack.settings)
    took = time.monotonic() - begin
    print(f"\nstopped in {took:.1f} s")
    assert took < 10
    container.reload()
    assert container.attrs["State"]["ExitCode"] == 143  # asked to end, not killed (137)
