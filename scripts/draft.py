"""Bring the rig's drafter to the models folder, checked."""

from scripts import cli, preparing


def body() -> None:
    rig = cli.load_rig(cli.parser(__doc__).parse_args().rig)
    if not preparing.bring(rig, ("drafter",)):
        cli.say(f"{rig.name} uses no drafter file (SPEC_TYPE={rig.spec_type or ''})")


if __name__ == "__main__":
    cli.main(body)
