"""Bring the rig's model and drafter to the models folder, checked."""

from scripts import cli, preparing


def body() -> None:
    preparing.fetch_files(cli.load_rig(cli.parser(__doc__).parse_args().rig))


if __name__ == "__main__":
    cli.main(body)
