"""Stop the rig's server, started by `make serve` in any terminal."""

from common.serving import record
from scripts import _cli


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    found = record.find(rig)
    if found is None:
        _cli.say(f"{rig.name} is not being served")
        return
    _cli.say(f"stopped process {found.pid or found.script} in {record.stop(found):.1f} s")


if __name__ == "__main__":
    _cli.main(body)
