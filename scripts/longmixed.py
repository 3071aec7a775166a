"""Measure the drafter with many long requests at once, each behind its own document."""

from pathlib import Path

from common import sweep
from scripts import cli, measuring, preparing


def body() -> int:
    parser = cli.parser(__doc__)
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    arguments = parser.parse_args()
    rig = sweep.longmixed_base(cli.load_rig(arguments.rig))
    quick = cli.flag("QUICK")
    built = preparing.prepare(rig)
    plan = measuring.with_tokenizer(
        rig, built, lambda tokenizer: sweep.longmixed_plan(rig, tokenizer, quick)
    )
    return measuring.measure(rig, plan, arguments.out, built)


if __name__ == "__main__":
    cli.main(body)
