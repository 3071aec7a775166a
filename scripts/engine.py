"""Build the rig's llama.cpp into the cache, or say where it is."""

from scripts import cli


def body() -> None:
    built = cli.build_engine(cli.load_rig(cli.parser(__doc__).parse_args().rig))
    cli.say(f"{built.title}\n{built.server}")


if __name__ == "__main__":
    cli.main(body)
