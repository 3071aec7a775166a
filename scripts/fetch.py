"""Bring the rig's model, its drafter or all its files to the models folder, checked."""

from common.files import wanted
from scripts import _cli, _preparing

ROLES = {"model": ("model",), "draft": ("drafter",), "all": wanted.ROLES}


def body() -> None:
    line = _cli.parser(__doc__)
    line.add_argument("role", metavar="ROLE", choices=ROLES, help=", ".join(ROLES))
    arguments = line.parse_args()
    rig = _cli.load_rig(arguments.rig)
    if not _preparing.bring(rig, ROLES[arguments.role]):
        _cli.say(f"{rig.name} uses no drafter file (SPEC_TYPE={rig.spec_type or ''})")


if __name__ == "__main__":
    _cli.main(body)
