"""Bring the rig's main model to the models folder, checked."""

from scripts import cli, preparing


def body() -> None:
    preparing.bring(cli.load_rig(cli.parser(__doc__).parse_args().rig), ("model",))


if __name__ == "__main__":
    cli.main(body)
