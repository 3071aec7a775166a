"""Measure a card that can be had for some minutes, and pack up what there is to bring home.

For the card of this host it makes rigs where they are missing, builds the engine, runs the
known-answer pair, what drafting costs on the shapes of E2B and E4B, and where the model files can
be had speed and sweep, as far as the minutes go. Called again, it goes on.
"""

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from tabulate import tabulate

from common.errors import RigError
from common.host import card as host_card
from common.rig import ROOT
from common.rigs import cards, first_runs
from common.rigs.cards import Card
from common.rigs.first_runs import Outcome, Say, Session, Step
from scripts import _cli

MINUTES = "30"


def body(
    arguments: Sequence[str] | None = None,
    root: Path = ROOT,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    parser = argparse.ArgumentParser(prog="make first-runs", description=__doc__)
    parser.add_argument("--minutes", default=MINUTES, help=f"how long; {MINUTES} if not given")
    parser.add_argument("--gpu", help="the card's name, where this host has several kinds")
    args = parser.parse_args(arguments)
    # Images of rented hosts have it in their environment, where it would beat the rigs'.
    os.environ.pop("CUDA_VERSION", None)
    minutes = _minutes(args.minutes)
    card = _card(args.gpu)
    name = f"first-runs-{card.slot}-{datetime.now().date()}"
    with _told(root / f"{name}.log") as say:
        say(f"{card.name}: {minutes:g} minutes from {datetime.now():%H:%M}")
        session = Session(minutes, say, root, clock)
        todo = first_runs.steps(first_runs.rigs(card, say, root))
        _foretell(todo, say)
        return measure(session, todo, root / name)


def measure(session: Session, todo: Sequence[Step], place: Path) -> int:
    """Go through the steps; at the end, however it comes, there is a table and an archive."""
    try:
        session.go(todo)
    finally:
        _table(session)
        _pack(session, place)
    return 1 if any(outcome.failed for outcome in session.outcomes) else 0


def _minutes(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not first_runs.RESERVE < found < 10_000:
        raise RigError(f"MINUTES={text}: expected a number of minutes above 1, such as {MINUTES}")
    return found


def _card(name: str | None) -> Card:
    """The card of this host. Raises RigError where there is nothing to do."""
    try:
        present = host_card.cards()
    except RigError as error:
        raise RigError(f"nothing to do here: {error}") from None
    if not present:
        raise RigError("nothing to do here: no NVIDIA card")
    found = cards.find(name)
    if not found.from_nvml:
        names = ", ".join(one.name for one in present)
        raise RigError(f"nothing to do here: GPU={name} is not in this host, which has: {names}")
    return found


@contextlib.contextmanager
def _told(path: Path) -> Iterator[Say]:
    """What is said stands on the terminal and in a file, which goes into the archive.

    A terminal that goes away ends the session in order, as `kill` does.
    """
    before = signal.getsignal(signal.SIGHUP)
    if before == signal.SIG_DFL:  # not under nohup
        signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as log:

            def say(text: str) -> None:
                log.write(f"{text}\n")
                log.flush()
                with contextlib.suppress(BrokenPipeError):  # the minutes run, whoever listens
                    _cli.say(text)

            yield say
    finally:
        signal.signal(signal.SIGHUP, before)


def _foretell(todo: Sequence[Step], say: Say) -> None:
    """The steps before they begin."""
    say("minutes below are rough estimates; none of them has been measured on a card")
    rows = [
        [
            step.name,
            "-" if step.quick is None else f"{step.quick:.0f}",
            f"{step.full:.0f}",
            _before(step),
        ]
        for step in todo
    ]
    say(tabulate(rows, ["step", "quick", "in full", ""], "simple", disable_numparse=True))


def _before(step: Step) -> str:
    if step.refusal:
        return f"cannot be done: {step.refusal}"
    return "there already" if step.is_there or step.finished() else ""


def _table(session: Session) -> None:
    rows = [
        [outcome.step.name, f"{outcome.minutes:.1f}", _short(session, outcome), outcome.result]
        for outcome in session.outcomes
    ]
    heads = ["step", "minutes", "run directory", "result"]
    session.say("")
    session.say(tabulate(rows, heads, "simple", disable_numparse=True))


def _short(session: Session, outcome: Outcome) -> str:
    folder = outcome.step.folder()
    return str(folder.relative_to(session.root)) if folder else ""


def _pack(session: Session, place: Path) -> None:
    """Make the archive and say what to do with it."""
    folders = [outcome.step.folder() for outcome in session.outcomes]
    found = list(dict.fromkeys(folder for folder in folders if folder))
    archive, log = place.with_name(f"{place.name}.tar.gz"), place.with_name(f"{place.name}.log")
    size = first_runs.pack(archive, found, [log] if log.is_file() else [], session.root)
    long = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    holds = f"run directories in it: {len(found)}, and all that was said here"
    session.say(f"\nto carry home: {archive.name}, {long}; {holds}")
    session.say(f"at home, in a clone (it replaces nothing): tar -xzkf {archive.name}")
    if found:
        session.say("then: make compare")


if __name__ == "__main__":
    _cli.main(body)
