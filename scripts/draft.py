"""Bring the rig's model and drafter files to the models folder, checked."""

from common import files
from scripts import cli


def body() -> None:
    rig = cli.load_rig(cli.parser(__doc__).parse_args().rig)
    files.fetch(rig, cli.say)
    for file in files.wanted(rig):
        cli.say(f"{file.role}: {file.path}")


if __name__ == "__main__":
    cli.main(body)
