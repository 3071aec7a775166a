"""Toolbox: what every group of MCP tools has."""

from pathlib import Path

from common import rig
from common.rig import Rig


class Toolbox:
    """Tools of one rig. Its settings are read anew at each call: tpu.env may have been edited."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def rig(self) -> Rig:
        """The rig as its tpu.env says now. Raises RigError if that is damaged."""
        return rig.load(self.folder)
