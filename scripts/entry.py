"""Entry point of the image: check what can be checked, then run one of the scripts.

docker run IMAGE SCRIPT [ARGUMENT ...]      such as: serve RIG
"""

import os
import sys

from common.engines.llamacpp import build
from common.errors import RigError
from common.host import container
from common.rig import FILE, ROOT
from scripts import _cli, lists


def body() -> None:
    needs = lists.needs()
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in needs:
        print(__doc__)
        _cli.say(f"scripts: {', '.join(sorted(needs))}")
        raise SystemExit(0 if arguments in ([], ["--help"]) else 2)
    verb, *rest = arguments
    container.read_secrets()
    if rest and "engine" in needs[verb].split(",") and (ROOT / rest[0] / FILE).is_file():
        ready(rest[0])
    line = [*_cli.command(verb, *rest[:1]), *rest[1:]]
    os.execv(sys.executable, line)  # noqa: S606 (one program)


def ready(name: str) -> None:
    """Check engine and card for the rig `name`; prints warnings. Raises RigError."""
    rig = _cli.load_rig(name)
    found = build.find(rig)
    if found.info.get("backend") != rig.backend:
        raise RigError(
            f"{rig.name} wants BACKEND={rig.backend}, this image was built for "
            f"{found.info.get('backend')}: build its own with make image"
        )
    for warning in container.check_card(rig, found):
        print(f"warning: {warning}", file=sys.stderr)
    container.check_program(build.CONTAINER)  # one for CUDA does not start without a driver


if __name__ == "__main__":
    _cli.main(body)
