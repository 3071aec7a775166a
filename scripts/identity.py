"""Compare the greedy text with a drafter to the text without, and write a dated report."""

from pathlib import Path

from common import identity
from scripts import cli, measuring


def body() -> int:
    parser = cli.parser(__doc__)
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    arguments = parser.parse_args()
    rig = cli.load_rig(arguments.rig)
    plan = measuring.with_tokenizer(rig, lambda tokenizer: identity.plan(rig, tokenizer))
    return measuring.measure(rig, plan, arguments.out)


if __name__ == "__main__":
    cli.main(body)
