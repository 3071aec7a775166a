"""Make the rigs' services in compose.yaml anew from each tpu.env; their memory limits stay."""

import argparse

from common import atomic
from common.rig import ROOT
from common.rigs import services
from scripts import _cli


def body() -> None:
    argparse.ArgumentParser(prog="make compose", description=__doc__).parse_args()
    atomic.write(ROOT / services.COMPOSE, services.anew())
    _cli.say(f"wrote {ROOT / services.COMPOSE}")


if __name__ == "__main__":
    _cli.main(body)
