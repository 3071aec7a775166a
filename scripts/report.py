"""Make a run's report again from the files in its folder."""

import argparse
from pathlib import Path

from common import report
from scripts import _cli


def body() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    _cli.say(str(report.write(parser.parse_args().run)))


if __name__ == "__main__":
    _cli.main(body)
