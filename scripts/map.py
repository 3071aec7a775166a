"""Draw where the drafter pays, loses or is even, from the rig's runs."""

from common.compare import map as rig_map
from scripts import cli


def body() -> None:
    cli.say(str(rig_map.write(cli.load_rig(cli.parser(__doc__).parse_args().rig))))


if __name__ == "__main__":
    cli.main(body)
