"""What the image of a rig with a card does where no card works: drivers that are not there."""

import subprocess
from pathlib import Path

from tests.helpers import stub_driver
from tests.helpers.limits import HANG_S
from tests.helpers.stub_driver import Behaviour

CASES: dict[str, tuple[Behaviour | None, str]] = {
    "no library of the driver": (None, "driver"),
    "no device": (stub_driver.NO_DEVICE, "card"),
    "an older CUDA": (stub_driver.OLDER_CUDA, "580"),
}
"""a driver, and what must be said of it"""


def says_so_in_one_line(image: str, rig: str, case: str, folder: Path) -> None:
    """`serve` of the image ends with 1 and one line of advice, and serves nothing."""
    behaviour, word = CASES[case]
    options: list[str] = []
    if behaviour is not None:
        place = stub_driver.build(folder / "driver", behaviour)
        for path in (folder, place):
            path.chmod(0o755)  # the image's user is another one
        options = ["-v", f"{place}:/driver:ro", "-e", "LD_LIBRARY_PATH=/driver"]
    line = ["docker", "run", "--rm", "--network", "none", *options, image, "serve", rig]
    done = subprocess.run(line, capture_output=True, text=True, timeout=HANG_S)
    said = (done.stdout + done.stderr).strip()
    assert done.returncode == 1, said
    assert said.startswith("error: ")
    assert len(said.splitlines()) == 1
    assert word in said
