"""Draw where the drafter pays, loses or is even, from the rig's runs."""

from common.compare import map as rig_map
from scripts import _cli


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    _cli.say(str(rig_map.write(rig, _cli.say)))


if __name__ == "__main__":
    _cli.main(body)
