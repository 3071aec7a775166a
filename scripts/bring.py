"""Bring all files of the rig to the models folder, checked; compose.yaml does it before serving."""

from scripts import cli, preparing


def body() -> None:
    preparing.bring(cli.load_rig(cli.parser(__doc__).parse_args().rig))


if __name__ == "__main__":
    cli.main(body)
