"""First runs: what a card is asked first, step by step, in the minutes that it can be had.

Every figure in minutes is a rough estimate for a card of the middle class, and none of them has
been measured on a card. They decide only which steps are begun.
"""

import json
import os
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common import atomic, rig
from common.engines.llamacpp import build, compiling, jobs
from common.errors import RigError
from common.files import hub, wanted
from common.measure import resume, run
from common.measure.journal import Manifest
from common.rig import ROOT, Rig
from common.rigs import fitting, known_answer, sizes, timed
from common.rigs import folder as rig_folder
from common.rigs.blueprint import Blueprint
from common.rigs.cards import Card
from common.rigs.known_answer import KnownAnswer

SIZES = ("2b", "4b")
ENCODING = "q4_0"
SOURCE = 2.0
"""to fetch source, tools and CUDA's compiler"""
MB_A_SECOND = 20.0
"""of a download"""
# Kind and size -> in full, and as a quick look (QUICK=1).
MINUTES: Mapping[tuple[str, str], tuple[float, float]] = {
    ("speed", known_answer.SIZE): (3.0, 1.0),
    ("cost", "2b"): (10.0, 4.0),
    ("cost", "4b"): (15.0, 6.0),
    ("speed", "2b"): (12.0, 3.0),
    ("speed", "4b"): (15.0, 4.0),
    ("sweep", "2b"): (150.0, 10.0),
    ("sweep", "4b"): (200.0, 15.0),
}
RESERVE = 1.0
"""kept back to end a step in order and to make the archive"""
ENGINE = "engine"
KNOWN_ANSWER = "known answer"
# What steps decide themselves, and what make hands on of its own call.
OWN = ("QUICK", "RESUME", "RIG", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
Say = Callable[[str], object]


@dataclass(frozen=True)
class Step:
    """One make target of a rig."""

    name: str
    rig: Path
    targets: tuple[str, ...]
    full: float
    """minutes, estimated"""
    quick: float | None = None
    """the same with QUICK=1; None: it has no quick form"""
    needs: tuple[str, ...] = ()
    """the steps without which it is nothing"""
    is_there: bool = False
    """whether what it would bring is here already"""
    refusal: str = ""
    """why it cannot be done here"""

    @property
    def least(self) -> float:
        return self.full if self.quick is None else self.quick

    @property
    def kind(self) -> str | None:
        """The measurement that it is; None if it leaves no run directory."""
        return None if self.quick is None else self.targets[0]

    def runs(self) -> list[tuple[Path, Manifest]]:
        """The rig's runs of this kind that can be read, the newest first."""
        found = []
        for folder in sorted((self.rig / "benchmarks" / "runs").glob("[!.]*")):
            try:
                manifest = run.read_manifest(folder)
            except RigError:
                continue
            if manifest["what"] == self.kind:
                found.append((folder, manifest))
        return sorted(found, key=lambda one: str(one[1]["started"]), reverse=True)

    def finished(self) -> tuple[Path, Manifest] | None:
        """Its newest run that ended."""
        ended = (one for one in self.runs() if one[1]["ended"]) if self.kind else iter(())
        return next(ended, None)

    def folder(self) -> Path | None:
        """What there is to bring home of it: a run that ended, else one that did not."""
        if self.kind is None or self.refusal:
            return None
        done = self.finished()
        return done[0] if done else next((folder for folder, _ in self.runs()), None)


@dataclass
class Outcome:
    """What became of a step."""

    step: Step
    result: str = "stopped"
    minutes: float = 0.0
    good: bool = False
    """whether what needs it can go on"""
    failed: bool = False
    begun: bool = False


def rigs(card: Card, say: Say, root: Path = ROOT) -> dict[str, Rig | RigError]:
    """The card's rigs by size: the known-answer pair's, then SIZES; made where they are missing.
    What does not fit the card has the error that says so in its place."""
    found: dict[str, Rig | RigError] = {}
    for size in (known_answer.SIZE, *SIZES):
        try:
            new = _new(card, size)
            place = root / new.name
            if not (place / rig.FILE).is_file():
                rig_folder.make(new, root)
                say(f"made {new.name}; nothing of it has been measured")
            found[size] = rig.load(place)
        except RigError as error:
            found[size] = error
    return found


def _new(card: Card, size: str) -> rig_folder.NewRig:
    if size == known_answer.SIZE:
        return KnownAnswer(card)
    model = sizes.find(size)
    return Blueprint(card, model, ENCODING, fitting.fit(card, model, ENCODING))


def steps(of: Mapping[str, Rig | RigError]) -> list[Step]:
    """What to do with a card's rigs, what matters most first. Asks the hub for missing files."""
    tiny = of[known_answer.SIZE]
    if isinstance(tiny, RigError):
        raise tiny
    found = [
        Step(
            ENGINE,
            tiny.folder,
            ("engine",),
            SOURCE + compiling.CUDA_CORE_MINUTES / jobs.jobs("cuda"),
            is_there=build.is_built(tiny),
        ),
        _measured("speed", known_answer.SIZE, tiny, KNOWN_ANSWER),
    ]
    found += [_measured("cost", size, of[size]) for size in SIZES]
    for size in SIZES:
        files = _files(size, of[size])
        found.append(files)
        for kind in ("speed", "sweep"):
            found.append(_measured(kind, size, of[size], files=files))
    return found


def _measured(
    kind: str, size: str, mine: Rig | RigError, name: str = "", files: Step | None = None
) -> Step:
    full, quick = MINUTES[kind, size]
    needs = (ENGINE, files.name) if files else (ENGINE,)
    place, refusal = (mine.folder, "") if isinstance(mine, Rig) else (Path(), _first(mine))
    return Step(name or f"{kind} {size}", place, (kind,), full, quick, needs, refusal=refusal)


def _files(size: str, mine: Rig | RigError) -> Step:
    """The step that brings the model files, with how much there is to fetch."""
    name, targets = f"files {size}", ("model", "draft")
    if isinstance(mine, RigError):
        return Step(name, Path(), targets, 0.0, refusal=_first(mine))
    missing = [file for file in wanted.wanted(mine) if not file.path.is_file()]
    try:
        megabytes = sum(_size(file) for file in missing) / 1e6
    except RigError as error:
        return Step(name, mine.folder, targets, 0.0, refusal=f"no model files: {_first(error)}")
    minutes = megabytes / MB_A_SECOND / 60
    return Step(name, mine.folder, targets, minutes, is_there=not missing)


def _size(file: wanted.Wanted) -> int:
    if file.made_here:
        return 0
    if file.hub is None:
        raise RigError(f"no repository is known to hold {file.name}")
    return hub.glance(file.on_hub).size


def _first(error: RigError) -> str:
    """What an error says first, in one line and without advice."""
    return str(error).splitlines()[0].partition("; ")[0].rstrip(".")


@dataclass
class Session:
    """Steps within a number of minutes. What became of each is in `outcomes`, also after Ctrl-C."""

    minutes: float
    say: Say
    root: Path = ROOT
    clock: Callable[[], float] = time.monotonic
    """seconds"""
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start = self.clock()

    @property
    def left(self) -> float:
        """Minutes for steps."""
        return self.minutes - RESERVE - (self.clock() - self._start) / 60

    def go(self, todo: Sequence[Step]) -> None:
        """Every step in turn: in full where the minutes left also allow the quick form of what
        comes after it, else quick, else not at all. One that fails does not stop the others."""
        for place, step in enumerate(todo):
            outcome = Outcome(step)
            self.outcomes.append(outcome)
            begun = self.clock()
            try:
                outcome.result = self._one(outcome, todo[place + 1 :])
            finally:
                outcome.minutes = (self.clock() - begun) / 60
                took = f", {outcome.minutes:.1f} min" if outcome.begun else ""
                self.say(f"{step.name}: {outcome.result}{took}")

    def _one(self, outcome: Outcome, later: Sequence[Step]) -> str:
        step = outcome.step
        if step.refusal:
            return f"skipped: {step.refusal}"
        if step.is_there or step.finished():
            outcome.good = True
            return f"there already{_form(step)}"
        if lacking := [name for name in step.needs if name in self._lost()]:
            return f"skipped: needs {lacking[0]}"
        if step.least > self.left:
            left = max(0.0, self.left)
            return f"skipped: about {_minutes(step.least)}, {_minutes(left)} left"
        quick = step.quick is not None and step.full - step.least > self._spare(step, later)
        minutes = step.least if quick else step.full
        self.say(
            f"\n{step.name}: about {_minutes(minutes)}{' as a quick look' if quick else ''} "
            f"(an estimate), {_minutes(self.left)} left"
        )
        outcome.begun = True
        return self._made(outcome, quick, self._goes_on(step, quick))

    def _lost(self) -> set[str]:
        """The steps so far that nothing can build on."""
        return {other.step.name for other in self.outcomes if not other.good}

    def _spare(self, step: Step, later: Sequence[Step]) -> float:
        """Minutes that no quick form has a use for, of this step and of those after it."""
        left, out = self.left - step.least, self._lost() - {step.name}
        for other in later:
            if other.is_there or other.finished():
                continue
            if other.refusal or other.least > left or out.intersection(other.needs):
                out.add(other.name)
            else:
                left -= other.least
        return left

    def _goes_on(self, step: Step, quick: bool) -> bool:
        """Whether an unfinished run of this form is there to be continued."""
        if step.kind is None:
            return False
        begun = resume.last_unfinished(rig.load(step.rig), step.kind, lambda _: None)
        return begun is not None and _is_quick(run.read_manifest(begun)) == quick

    def _made(self, outcome: Outcome, quick: bool, again: bool) -> str:
        """Call make; returns the result in words."""
        step = outcome.step
        name = str(step.rig.relative_to(self.root))
        given = ["RUNNER=host", *["QUICK=1"] * quick, *["RESUME=1"] * again]
        command = ["make", "--no-print-directory", "-C", name, *step.targets, *given]
        self.say(" ".join(command))
        clean = {key: value for key, value in os.environ.items() if key not in OWN}
        try:
            ended = timed.run(command, self.root, clean, lambda: self.left <= 0, self.say)
        except OSError as error:
            outcome.failed = True
            return f"failed: make cannot be started: {error.strerror or error}"
        if ended.late:
            return "stopped: the minutes were over"
        if ended.code != 0:
            if again and ended.reason.endswith(resume.ANEW):
                return self._made(outcome, quick, False)
            outcome.failed = True
            return f"failed: {ended.reason}"
        if step.kind and not step.finished():
            outcome.failed = True
            return "failed: it left no finished run directory"
        outcome.good = True
        if step.name == KNOWN_ANSWER and not _is_as_known(step):
            outcome.failed = True
            return f"NOT what was worked out on paper{_form(step)}"
        return f"done{_form(step)}"


def _minutes(count: float) -> str:
    return f"{count:.0f} min" if count >= 1 else "less than 1 min"


def _form(step: Step) -> str:
    """What must be said beside a finished run."""
    done = step.finished()
    return " (quick)" if done and _is_quick(done[1]) else ""


def _is_quick(manifest: Manifest) -> bool:
    return bool((manifest.get("plan") or {}).get("quick"))


def _is_as_known(step: Step) -> bool:
    """Whether all that was drafted and kept is what was worked out, by the run's own summary."""
    done = step.finished()
    try:
        text = (done[0] / run.SUMMARY).read_text(encoding="utf-8") if done else "{}"
        rows = json.loads(text)["known_answer"]
        return bool(rows) and all(row["equal"] is True for row in rows)
    except (OSError, *run.ODD):
        return False


def pack(archive: Path, folders: Sequence[Path], also: Sequence[Path], root: Path = ROOT) -> int:
    """Put run directories and other files into one archive, named from `root`, to be unpacked in
    another clone; returns its bytes. Raises OSError."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if Path(member.name).name == run.LOCK:
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with atomic.part_of(archive) as part, tarfile.open(part, "w:gz") as opened:
        for path in (*folders, *also):
            opened.add(path, str(path.relative_to(root)), filter=plain)
    return archive.stat().st_size
