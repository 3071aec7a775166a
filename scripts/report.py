"""Make a run's report again from the files in its folder. SET_ASIDE=1 moves damaged lines of its
journal into a file beside it first."""

import argparse
from pathlib import Path

from common import report
from common.measure import resume
from scripts import _cli


def body() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    folder = parser.parse_args().run
    if _cli.flag("SET_ASIDE"):
        for said in resume.set_aside(folder):
            _cli.say(said)
    _cli.say(str(report.write(folder)))


if __name__ == "__main__":
    _cli.main(body)
