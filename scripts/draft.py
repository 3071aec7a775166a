"""Bring the rig's drafter to the models folder, checked."""

from scripts import _cli, _preparing


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    if not _preparing.bring(rig, ("drafter",)):
        _cli.say(f"{rig.name} uses no drafter file (SPEC_TYPE={rig.spec_type or ''})")


if __name__ == "__main__":
    _cli.main(body)
