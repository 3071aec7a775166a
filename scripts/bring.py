"""Bring all files of the rig to the models folder, checked; compose.yaml does it before serving."""

from common.files import wanted
from scripts import cli, preparing


def body() -> None:
    rig = cli.load_rig(cli.parser(__doc__).parse_args().rig)
    preparing.fetch_files(rig)
    for file in wanted.wanted(rig):
        cli.say(f"{file.role}: {file.path}, {wanted.judgement(file)}")


if __name__ == "__main__":
    cli.main(body)
