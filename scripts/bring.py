"""Bring all files of the rig to the models folder, checked; compose.yaml does it before serving."""

from common import files
from scripts import cli, preparing


def body() -> None:
    rig = cli.load_rig(cli.parser(__doc__).parse_args().rig)
    preparing.fetch_files(rig)
    for file in files.wanted(rig):
        cli.say(f"{file.role}: {file.path}, {files.judgement(file)}")


if __name__ == "__main__":
    cli.main(body)
