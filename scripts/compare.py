"""Compare runs: rigs and measurements side by side, published figures, ratios between cards."""

import argparse
import shlex
from pathlib import Path

from common.compare import compare, runs
from common.compare import page as compare_page
from common.rig import ROOT
from scripts import _cli


def folders(text: str) -> list[Path]:
    return [Path(name) for name in shlex.split(text)]


def body() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    help_runs = "run directories, also from elsewhere; none: all finished ones here"
    parser.add_argument("named", metavar="RUN", nargs="*", type=Path, help=help_runs)
    help_more = "more of them in one argument, parted by blanks; quotes hold a name with blanks"
    parser.add_argument("--runs", type=folders, default=[], metavar="RUNS", help=help_more)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "compare")
    chosen = parser.parse_args()
    asked = [*chosen.named, *chosen.runs]
    if asked:
        found = compare.compare(asked)
    else:  # one damaged run must not keep the others from the page
        found = compare.compare(runs.finished(), lambda error: _cli.say(f"left out: {error}"))
    for said in found["answer"]:
        _cli.say(said)
    for path in compare_page.write(found, chosen.out):
        _cli.say(str(path))


if __name__ == "__main__":
    _cli.main(body)
