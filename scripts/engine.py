"""Build or fetch the rig's llama.cpp into the cache, or say where it is."""

from scripts import _cli, _preparing


def body() -> None:
    built = _preparing.build_engine(_cli.load_rig(_cli.parser(__doc__).parse_args().rig))
    _cli.say(f"{built.title}\n{built.server}")


if __name__ == "__main__":
    _cli.main(body)
