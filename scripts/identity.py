"""Compare the greedy text with a drafter to the text without, and write a dated report."""

from pathlib import Path

from common import identity
from scripts import cli, measuring, preparing


def body() -> int:
    parser = cli.parser(__doc__)
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    arguments = parser.parse_args()
    rig = cli.load_rig(arguments.rig)
    built = preparing.prepare(rig)
    plan = measuring.with_tokenizer(rig, built, lambda tokenizer: identity.plan(rig, tokenizer))
    return measuring.measure(rig, plan, arguments.out, built)


if __name__ == "__main__":
    cli.main(body)
