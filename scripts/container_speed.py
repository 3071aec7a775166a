"""Compare an engine in its container with the same engine on the host, in turns; print the ratio.

Both servers run throughout; each prompt is asked of one, then of the other, and the order changes
from round to round. Needs the image and the rig's model files in the models folder.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import docker
from docker.errors import DockerException
from docker.models.containers import Container

from common import places
from common.engines.llamacpp import build, serve
from common.errors import RigError
from common.kinds.image_check.plan import copied
from common.measure import stats
from common.measure.page import LEVEL
from common.measure.texts import SIX, prompts
from common.rig import Rig
from common.serving import client
from common.serving.process import Server
from scripts import _cli

TOKENS = 128


class Contained(AbstractContextManager["Contained"]):
    """llama-server with the same flags in a container, hardened as in compose.yaml."""

    def __init__(self, rig: Rig, image: str) -> None:
        self.rig = rig.variant({"HOST": "0.0.0.0"})  # noqa: S104 (published on loopback only)
        self.image = image
        self.container: Container | None = None

    def __enter__(self) -> "Contained":
        line = serve.command(self.rig, build.CONTAINER, measuring=True)
        inside = [word.replace(str(places.models()), "/models") for word in line]
        port = str(self.rig.port)
        self.container = docker.from_env().containers.run(
            self.image,
            inside[1:],
            entrypoint=inside[0],
            detach=True,
            init=True,
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            pids_limit=512,
            environment={"LLAMA_ARG_LOG_VERBOSITY": "4"},  # as on the host
            ports={f"{port}/tcp": ("127.0.0.1", self.rig.port)},
            tmpfs={"/tmp": ""},  # noqa: S108
            volumes={str(places.models()): {"bind": "/models", "mode": "ro"}},
        )
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if serve.healthy(self.rig.url):
                return self
            time.sleep(0.1)
        raise RigError("llama-server in the container was not ready within two minutes")

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self.container is not None:
            self.container.remove(force=True)


def copy_engine(image: str, folder: Path) -> Path:
    """Take the engine out of the image; returns its llama-server."""
    host = docker.from_env()
    home = copied(host, host.images.get(image), str(build.CONTAINER.parent), folder)
    return home / build.CONTAINER.name


def speed(rig: Rig, body: dict[str, object]) -> float:
    reply = client.ask(rig.url, [body], 600)[0]
    if reply.error or reply.predicted_per_second is None:
        raise RigError(f"{rig.url}: {reply.error}")
    return reply.predicted_per_second


def compare(host: Rig, contained: Rig, rounds: int, show: Callable[[str], None]) -> stats.SpeedUp:
    on_host: dict[stats.Key, float] = {}
    in_container: dict[stats.Key, float] = {}
    for number in range(rounds):
        for index, (name, text) in enumerate(prompts(SIX).items()):
            body = client.chat(text, TOKENS, temperature=0, seed=1)
            turns = [(on_host, host), (in_container, contained)]
            for found, rig in turns if (number + index) % 2 else reversed(turns):
                found[(name, f"round {number}")] = speed(rig, body)
        show(f"round {number + 1} of {rounds}")
    return stats.speed_up(on_host, in_container)


def body() -> int:
    parser: argparse.ArgumentParser = _cli.parser(__doc__)
    parser.add_argument("image", metavar="IMAGE", help="the rig's image")
    parser.add_argument("rounds", metavar="ROUNDS", type=int, nargs="?", default=6)
    arguments = parser.parse_args()
    rig = _cli.load_rig(arguments.rig).variant({"SPEC_TYPE": ""})
    other = rig.variant({"PORT": str(rig.port + 100)})
    try:
        with tempfile.TemporaryDirectory() as temporary:
            program = copy_engine(arguments.image, Path(temporary))
            log = Path(temporary) / "server.log"
            here = build.Engine(program, {})
            with Server(rig, here, log, measuring=True), Contained(other, arguments.image) as there:
                found = compare(rig, there.rig, arguments.rounds, _cli.say)
    except DockerException as error:
        raise RigError(f"Docker: {error}") from None
    interval = "" if found.low is None else f" ({LEVEL} {found.low:.3f} to {found.high:.3f})"
    _cli.say(
        f"container / host: {found.ratio:.3f}{interval}, decode speed, {arguments.rounds} rounds"
    )
    return 0


if __name__ == "__main__":
    _cli.main(body)
