"""Progress: how far a measurement is, as data for whoever started it in the background."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from common import atomic

VARIABLE = "GEMMA_RIGS_PROGRESS"
"""the environment variable that names the file it is written to; without it none is"""


@dataclass(frozen=True)
class Progress:
    """run: the run directory. total: trials in all, as far as that is known."""

    run: str
    done: int
    total: int | None


def tell(run: Path, done: int, total: int | None) -> None:
    """Write how far the run is, if somebody asked for it."""
    if file := os.environ.get(VARIABLE):
        found = Progress(str(run.resolve()), done, total)
        with contextlib.suppress(OSError):  # nobody's measurement is ended for it
            atomic.write(Path(file), json.dumps(asdict(found)) + "\n")


def read(file: Path) -> Progress | None:
    """What was last told; None before the first trial can begin."""
    try:
        found = Progress(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    whole = isinstance(found.total, int | None)
    return found if isinstance(found.run, str) and isinstance(found.done, int) and whole else None
