"""Write the digest that each base image of the Dockerfile has in its registry now."""

import argparse

from common import atomic
from common.errors import RigError
from common.rig import ROOT
from common.rigs import bases, services
from scripts import _cli


def body() -> None:
    argparse.ArgumentParser(prog="make pin", description=__doc__).parse_args()
    path = ROOT / bases.DOCKERFILE
    before = services.read(path)
    bases.check_docker()
    found = bases.written(before)
    digests: dict[str, str] = {}
    for base in found:
        try:
            new = digests[base.name] = bases.look(base.name)
        except RigError as error:
            _cli.say(f"{base.name}: not to be had: {error}")
            continue
        old = base.digest or "no digest"
        changed = f"from {old} to {new}"
        _cli.say(f"{base.name}: {'as written, ' + new if new == old else changed}")
    after = bases.anew(before, digests)
    if after != before:
        atomic.write(path, after, sync=True)
        _cli.say(f"wrote {path}; images are built anew from it")
    if missing := len(found) - len(digests):
        raise RigError(
            f"{missing} of {len(found)} base images stay as {path} has them",
            fix="run make pin again where their registry answers",
        )


if __name__ == "__main__":
    _cli.main(body)
