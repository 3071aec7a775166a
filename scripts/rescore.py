"""Score the stored replies of an accuracy run anew, without the model."""

import argparse
from pathlib import Path

from common import report
from common.errors import RigError
from common.kinds.accuracy import scores
from common.measure import run
from scripts import _cli


def body() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", metavar="RUN", type=Path, help="the directory of an accuracy run")
    folder = parser.parse_args().run
    what = run.read_manifest(folder)["what"]
    if what != "accuracy":
        raise RigError(f"{folder}: only accuracy runs have scores, this one is of kind {what}")
    path = report.write(folder)
    _cli.say(f"scored {len(run.read_lines(folder, scores.SCORES_FILE))} replies anew: {path}")
    _cli.say(report.answer(folder))


if __name__ == "__main__":
    _cli.main(body)
