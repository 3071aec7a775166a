"""Measure how deep in a long context the drafter's gain reaches."""

from pathlib import Path

from common import longctx
from scripts import cli, measuring, preparing


def body() -> int:
    parser = cli.parser(__doc__)
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    arguments = parser.parse_args()
    rig = longctx.base(cli.load_rig(arguments.rig))
    quick = cli.flag("QUICK")
    built = preparing.prepare(rig)
    plan = measuring.with_tokenizer(
        rig, built, lambda tokenizer: longctx.plan(rig, tokenizer, quick)
    )
    return measuring.measure(rig, plan, arguments.out, built)


if __name__ == "__main__":
    cli.main(body)
