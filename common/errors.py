"""The one error a user can cause, and the question in it that names what was perhaps meant."""

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


class RigError(Exception):
    """Bad input, a missing file, a host that cannot do it.

    The message says what happened, to which file or setting, and what to do about it; a `fix` given
    by itself is the message's end and can be shown apart. Scripts print it as one line and exit
    with 1; it never becomes a traceback.
    """

    def __init__(self, what: str, *, fix: str = "") -> None:
        super().__init__(f"{what}; {fix}" if fix else what)
        self.what = what
        self.fix = fix


class StartError(RigError):
    """A llama-server that was started and did not come up, or not as its rig says."""


def did_you_mean(
    word: str,
    known: Iterable[str],
    show: Callable[[str], str] = str,
    most: int = 1,
    alike: float = 0.6,
) -> str:
    """A question that names the nearest known words, in lower case or upper; else nothing.

    `show` is what stands for a known word in the question, `alike` how near one must be, up to 1.
    """
    lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), lower, most, alike)
    return f"did you mean {' or '.join(show(lower[name]) for name in near)}?" if near else ""


@contextlib.contextmanager
def disk_says(place: Path, fix: str) -> Iterator[None]:
    """Turns what the disk refuses into one line: the file it names, or else `place`."""
    try:
        yield
    except OSError as error:
        raise RigError(f"{error.filename or place}: {error.strerror or error}", fix=fix) from None


def shown(text: str) -> str:
    """A name that came out of a file or off the network, fit for a line on a terminal."""
    return text if text.isprintable() and len(text) <= 100 else repr(text[:100])
