"""Build a rig's image and look into it: sizes, libraries, machine code. Needs no card."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import docker

from common import report
from common.engines.llamacpp import build, compiling, toolkit
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.host import facts
from common.kinds.image_check import plan
from common.measure import run
from common.rig import ROOT, Rig
from scripts import _cli


def body(arguments: Sequence[str] | None = None) -> int:
    parser = _cli.parser(__doc__)
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    args = parser.parse_args(arguments)
    rig = _cli.load_rig(args.rig)
    if rig.backend != "cuda" or rig.cuda_version is None:
        raise RigError(f"{rig.name} is built for no card; name a rig with BACKEND=cuda")
    if int(rig.cuda_version.split(".")[0]) < toolkit.FIRST_WHOLE:
        raise RigError(
            f"an image of CUDA {rig.cuda_version} cannot be looked into: the program that reads "
            f"machine code is in the package index from CUDA {toolkit.FIRST_WHOLE} on"
        )
    compiling.check_tools(rig)
    compiling.check_room(rig)
    cuda = toolkit.get(rig.cuda_version, _cli.say, own=False)
    before = {
        "harness": facts.harness(),
        "load": round(os.getloadavg()[0], 2),
        "host": facts.host(),
    }
    name, seconds = built(rig)
    try:
        client = docker.from_env(timeout=600)
        info = engine_info(client, name)
        manifest = {
            "plan": {"quick": False},
            **before,
            "engine": info,
            "engine_title": Engine(Path(plan.SERVER), info).title,
            "build_seconds": round(seconds, 1),
        }
        with run.create(rig, "image-check", manifest, args.out) as current:
            found = plan.look(client, name, rig, cuda, _cli.say)
            current.append(run.JOURNAL, found)
            current.finish()
    except docker.errors.DockerException as error:
        raise RigError(f"Docker: {error}") from None
    path = report.write(current.folder)
    _cli.say(report.answer(current.folder))
    _cli.say(f"report: {path}")
    return 1 if plan.problems(found) else 0


def built(rig: Rig) -> tuple[str, float]:
    """Build the image; what it is called, and how long that took. Docker shows its progress."""
    script = str(ROOT / "scripts" / "image.sh")
    done = subprocess.run([script, rig.name, "name"], capture_output=True, text=True)
    name = done.stdout.strip()
    began = time.monotonic()
    if done.returncode or subprocess.run([script, rig.name]).returncode:
        raise RigError(f"the image of {rig.name} was not built {done.stderr.strip()}".rstrip())
    return name, time.monotonic() - began


def engine_info(client: docker.DockerClient, name: str) -> dict[str, object]:
    """engine.json as it lies in the image."""
    with tempfile.TemporaryDirectory() as folder:
        where = str(Path(plan.SERVER).with_name(build.INFO))
        path = plan.copied(client, client.images.get(name), where, folder)
        return dict(json.loads(path.read_text()))


if __name__ == "__main__":
    _cli.main(body)
