"""Bring all files of the rig to the models folder, checked; compose.yaml does it before serving."""

from scripts import _cli, _preparing


def body() -> None:
    _preparing.bring(_cli.load_rig(_cli.parser(__doc__).parse_args().rig))


if __name__ == "__main__":
    _cli.main(body)
