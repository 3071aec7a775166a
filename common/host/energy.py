"""Energy: where joules can be read: of the card, or of the CPU packages through RAPL."""

import threading
from pathlib import Path
from typing import Literal

Source = Literal["NVML energy counter", "NVML power x time", "RAPL package"]
POWERCAP = Path("/sys/class/powercap")
WATCH_S = 10.0
"""how often the packages are to be read: the smallest of their counters wrap within minutes"""


class Packages:
    """The counters of all CPU packages of this host, added up."""

    def __init__(self, root: Path | None = None) -> None:
        # Parts of a package (core, dram) and what holds packages (psys) would count twice.
        self._domains = [
            path
            for path in sorted((root or POWERCAP).glob("intel-rapl:*"))
            if _text(path / "name").startswith("package")
        ]
        self._last: dict[Path, int] = {}
        self._moved_uj = 0
        self._lock = threading.Lock()

    def read(self) -> float | None:
        """Joules since the first reading; None if there is no package, or one cannot be read."""
        if not self._domains:
            return None
        with self._lock:
            try:
                now = {path: int(_text(path / "energy_uj")) for path in self._domains}
                ranges = {path: int(_text(path / "max_energy_range_uj")) for path in self._domains}
            except ValueError:
                return None
            for path, value in now.items():
                moved = value - self._last.get(path, value)
                self._moved_uj += moved if moved >= 0 else moved + ranges[path]
            self._last = now
            return self._moved_uj / 1e6


def _text(path: Path) -> str:
    """What a file says; nothing where it cannot be read, as only root may read some."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
