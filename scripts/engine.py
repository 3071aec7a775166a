"""Build or fetch the rig's llama.cpp into the cache, or say where it is."""

from scripts import cli, preparing


def body() -> None:
    built = preparing.build_engine(cli.load_rig(cli.parser(__doc__).parse_args().rig))
    cli.say(f"{built.title}\n{built.server}")


if __name__ == "__main__":
    cli.main(body)
