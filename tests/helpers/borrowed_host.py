"""A project on a host with a card for a while, where make is a stand-in and so is the clock."""

import json
import tarfile
from pathlib import Path
from typing import Any

from scripts import first_runs as script
from tests.helpers import runs
from tests.helpers.run_script import run_script


class Host:
    """A project on a host with an L4, where make is a stand-in and so is the clock."""

    def __init__(self, root: Path, stand: Path) -> None:
        self.root = root
        self.stand = stand
        self.does()
        (stand / "clock").write_text("0")
        manifest = {"version": 1, **runs.MADE}
        (stand / "manifest.json").write_text(json.dumps(manifest))

    def does(self, **behaviour: dict[str, Any]) -> None:
        """What make does from now on: by target, or by target and rig."""
        (self.stand / "behaviour.json").write_text(json.dumps(behaviour))

    def clock(self) -> float:
        text = (self.stand / "clock").read_text()
        return float(text) if text else 0.0  # it is being written

    def calls(self) -> list[str]:
        """How make was called since this was asked last."""
        path = self.stand / "calls"
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return text.splitlines()

    def first_runs(self, minutes: float = 30) -> int:
        words = ["--minutes", str(minutes)]
        return run_script(lambda _: script.body(words, self.root, self.clock), ())

    def archive(self) -> dict[str, int]:
        """Names in the one archive, with their sizes."""
        (path,) = self.root.glob("first-runs-l4-*.tar.gz")
        with tarfile.open(path) as opened:
            return {member.name: member.size for member in opened.getmembers()}
