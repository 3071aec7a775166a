"""Entry point of the image: check what can be checked, then run one of the scripts.

docker run IMAGE SCRIPT [ARGUMENT ...]      such as: serve RIG
"""

import os
import sys
from pathlib import Path

from common.engines.llamacpp import build
from common.errors import RigError
from common.host import container
from common.rig import FILE, ROOT
from scripts import cli

NOT_VERBS = (
    "cli",
    "container_speed",
    "entry",
    "health",
    "bench_repack",
    "image_engine",
    "job",
    "measuring",
    "new_rig",
    "preparing",
    "register",
)
NO_ENGINE = (
    *("show", "draft", "bring", "model", "pin", "files"),
    *("report", "map", "status", "stop", "doctor", "mcp_server"),
)


def body() -> None:
    verbs = sorted(path.stem for path in (ROOT / "scripts").glob("*.py"))
    verbs = [verb for verb in verbs if verb not in NOT_VERBS]
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in verbs:
        print(__doc__)
        cli.say(f"scripts: {', '.join(verbs)}")
        raise SystemExit(0 if arguments in ([], ["--help"]) else 2)
    verb, *rest = arguments
    container.read_secrets()
    if rest and verb not in NO_ENGINE and (ROOT / rest[0] / FILE).is_file():
        ready(rest[0])
    script = Path(__file__).with_name(f"{verb}.py")
    os.execv(sys.executable, [sys.executable, str(script), *rest])  # noqa: S606 (one program)


def ready(name: str) -> None:
    """Check engine and card for the rig `name`; prints warnings. Raises RigError."""
    container.check_program(build.CONTAINER)
    rig = cli.load_rig(name)
    found = build.find(rig)
    if found.info.get("backend") != rig.backend:
        raise RigError(
            f"{rig.name} wants BACKEND={rig.backend}, this image was built for "
            f"{found.info.get('backend')}: build its own with make image"
        )
    for warning in container.check_card(rig, found):
        print(f"warning: {warning}", file=sys.stderr)


if __name__ == "__main__":
    cli.main(body)
