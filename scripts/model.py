"""Bring the rig's main model to the models folder, checked."""

from scripts import _cli, _preparing


def body() -> None:
    _preparing.bring(_cli.load_rig(_cli.parser(__doc__).parse_args().rig), ("model",))


if __name__ == "__main__":
    _cli.main(body)
