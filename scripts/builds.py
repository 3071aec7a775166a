"""Measure another build of llama.cpp beside the rig's own, and write a dated report."""

import os

from common.host import card, container
from common.kinds.builds import plan as builds
from scripts import cli, measuring, preparing


def body() -> int:
    rig, out = measuring.arguments(__doc__)
    other = rig.variant(builds.changes(rig))
    card.find(rig)  # nothing is compiled for a rig that cannot run
    builds.check_place(rig, other)
    own = preparing.prepare(rig)
    second = preparing.build_engine(other)
    builds.check(other, own, second)
    container.check_card(other, second)
    digests = {build: os.environ.get(f"{build.upper()}_IMAGE_DIGEST") for build in ("rig", "other")}
    images = {build: digest for build, digest in digests.items() if digest}
    plan = builds.plan(rig, second, images, cli.flag("QUICK"))
    return measuring.measure(rig, plan, out, own)


if __name__ == "__main__":
    cli.main(body)
