"""List the files of a rig, and what else is in the models folder: verified or not."""

from tabulate import tabulate

from common import places
from common.files import listing
from scripts import _cli


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    _cli.say(f"models folder: {places.models()}")
    rows = [*listing.of_rig(rig), *listing.others(rig)]
    cells = [
        (
            row.role,
            row.name,
            "" if row.size is None else f"{row.size / 1e6:,.1f}",
            (row.sha256 or "")[:16],
            row.state,
        )
        for row in rows
    ]
    headers = ("role", "file", "MB", "SHA-256 begins", "state")
    columns = ("left", "left", "right", "left", "left")
    _cli.say(tabulate(cells, headers, colalign=columns, disable_numparse=True))


if __name__ == "__main__":
    _cli.main(body)
