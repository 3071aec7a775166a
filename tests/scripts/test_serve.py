"""serve, status and stop from two terminals, and the openai package as a client."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from common.engines.llamacpp.build import Engine
from common.known import chain as pair
from common.rig import ROOT, Rig
from tests.helpers.limits import HANG_S

pytestmark = pytest.mark.engine


def script(name: str, rig: Rig) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / f"{name}.py"), str(rig.folder)]


def run(name: str, rig: Rig) -> tuple[int, str]:
    done = subprocess.run(script(name, rig), capture_output=True, text=True, env=environment())
    return done.returncode, done.stdout + done.stderr


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


class Served:
    """A `serve` in another terminal, with all it has said until it was ready."""

    def __init__(self, rig: Rig) -> None:
        self.process = subprocess.Popen(
            script("serve", rig),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
        )
        assert self.process.stdout is not None
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if line.startswith("drafter:"):
                return
        pytest.fail(f"serve ended: {self.said}")

    def rest(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=HANG_S)
        return self.process.returncode, out


@pytest.fixture
def rig(tiny: Rig, real_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("LLAMA_SERVER", str(real_engine.server))
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    return tiny


@pytest.fixture
def served(rig: Rig) -> Iterator[Served]:
    found = Served(rig)
    yield found
    if found.process.poll() is None:
        found.process.send_signal(signal.SIGINT)
        found.process.wait(30)


def test_an_openai_client_can_use_it(rig: Rig, served: Served, real_engine: Engine) -> None:
    assert f"{rig.url}/v1" in served.said
    assert (f"chat in a browser: {rig.url}/" in served.said) is real_engine.embedded
    assert "drafter: works, kept" in served.said
    chain, prompt = pair.make_chain(), "Say something."
    client = openai.OpenAI(base_url=f"{rig.url}/v1", api_key="none")
    messages: list[Any] = [{"role": "user", "content": prompt}]
    create = client.chat.completions.create
    whole = create(model="any", messages=messages, max_tokens=20, temperature=0)
    assert whole.choices[0].message.content == chain.text(chain.reply(len(prompt), 20))
    text = ""
    for chunk in create(model="any", messages=messages, max_tokens=20, temperature=0, stream=True):
        assert isinstance(chunk, ChatCompletionChunk)
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == chain.text(chain.reply(len(prompt), 20))


def test_the_curl_line_works(served: Served) -> None:
    line = next(line for line in served.said.splitlines() if line.startswith("try: "))
    done = subprocess.run(["sh", "-c", line.removeprefix("try: ") + " -s"], capture_output=True)
    assert b'"content":' in done.stdout


def test_status_and_stop_from_another_terminal(rig: Rig, served: Served) -> None:
    code, text = run("status", rig)
    assert code == 0
    assert "health: ok" in text
    assert "kept: 0." in text
    code, text = run("serve", rig)
    assert code == 1
    assert "served already" in text
    code, text = run("stop", rig)
    assert (code, text.startswith("stopped process")) == (0, True)
    code, text = served.rest()
    assert code == 0
    assert text.endswith("stopped\n")
    assert run("status", rig)[0] == 3
    assert run("stop", rig) == (0, f"{rig.name} is not being served\n")


def test_ctrl_c_stops_it(rig: Rig, served: Served) -> None:
    served.process.send_signal(signal.SIGINT)
    code, text = served.rest()
    assert code == 130
    assert "Traceback" not in text
    assert run("status", rig)[0] == 3


def test_a_server_that_is_killed_is_an_error(rig: Rig, served: Served) -> None:
    _, text = run("status", rig)
    pid = int(text.partition("process ")[2].partition(",")[0])
    os.kill(pid, signal.SIGKILL)
    code, text = served.rest()
    assert code == 1
    assert "ended by itself" in text
    assert run("status", rig)[0] == 3
