"""Ask the questions of GSM8K and BFCL of two arms, and write a dated report on the answers."""

from pathlib import Path

from common import accuracy
from scripts import cli, measuring


def body() -> int:
    parser = cli.parser(__doc__)
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    arguments = parser.parse_args()
    rig = accuracy.served(cli.load_rig(arguments.rig))
    return measuring.measure(rig, accuracy.plan(rig), arguments.out)


if __name__ == "__main__":
    cli.main(body)
