"""What every measuring script shares: the run directory, progress, and the report."""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from tqdm import tqdm

from common import report
from common.digest import sha256
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.files import wanted
from common.host import alone, card, facts, room
from common.measure import loop, progress, resume, run
from common.measure.journal import Card, File, Harness, Host, Measured
from common.measure.kind import Kind, Tools
from common.measure.plan import Plan
from common.measure.texts import Tokenizer
from common.rig import Rig
from common.serving import process, record
from common.serving.process import Server
from scripts._cli import flag, load_rig, say
from scripts._preparing import build_engine, prepare

# What to do instead of QUICK=1, where there is something.
SHORTER = {"accuracy": "; ACCURACY_LIMIT=50 asks only so many questions of each test"}


def arguments(line: ArgumentParser) -> tuple[Rig, Path | None, Namespace]:
    """The rig on the command line, the folder for the run if one is named, and all of it."""
    line.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    found = line.parse_args()
    return load_rig(found.rig), found.out, found


def measure_kind(kind: Kind, rig: Rig, out: Path | None) -> Path:
    """Prepare, plan and measure one kind; returns the run directory.

    Raises RigError for QUICK=1 of a kind that has no quick form, and for whatever is missing.
    """
    quick = flag("QUICK")
    if quick and not kind.quick:
        raise RigError(
            f"{kind.name} has no quick form; leave QUICK=1 out{SHORTER.get(kind.name, '')}"
        )
    card.find(rig)  # nothing is fetched, made or compiled for a rig that cannot run
    with alone.measuring(f"{kind.name} of {rig.name}"):
        return _measure_alone(kind, rig, out, quick)


def _measure_alone(kind: Kind, rig: Rig, out: Path | None, quick: bool) -> Path:
    ready: list[Engine] = []

    def engine(of: Rig) -> Engine:
        if not ready:
            ready.append(prepare(of))
        return ready[0]

    tools = Tools(
        quick,
        engine,
        build_engine,
        lambda of, make: with_tokenizer(of, engine(of), make),
        say,
        steps,
    )
    served, plan = kind.planned(rig, tools)
    return measure(served, plan, out, engine(served))


@contextmanager
def steps(count: int, unit: str) -> Iterator[Callable[[int], object]]:
    """Progress of something long that is made before measuring."""
    with tqdm(total=count, unit=unit, unit_scale=True, disable=None, leave=False) as bar:
        yield bar.update


def measure(loaded: Rig, plan: Plan, out: Path | None, built: Engine | None = None) -> Path:
    """Measure a plan into a run directory (new, or RESUME=1), write its report, return the folder.

    built: what `prepare` gave, where it was called already.
    """
    built = built or prepare(loaded)
    room.check(loaded)  # a plan may serve with a larger context than the rig itself
    start = time.monotonic()
    manifest = _manifest(loaded, plan, built)
    again = flag("RESUME")
    if again:
        current = resume.resume(loaded, plan.what, manifest, out, say)
    else:
        current = run.create(loaded, plan.what, manifest, out)
    with current:
        for name, text in plan.attached.items():
            (current.folder / name).write_text(text, encoding="utf-8")
        say(f"{'continuing' if again else 'measuring'} into {_short(current.folder)}")
        known = sum(len(plan.asked(turn)) for turn, _arm in plan.blocks())
        total = plan.at_most or known
        with tqdm(total=total, unit="trial", disable=None) as bar:
            done = tenth = 0
            progress.tell(current.folder, done, total)

            def show(finished: int, what: str) -> None:
                nonlocal done, tenth
                bar.set_description(what, refresh=False)
                bar.update(finished)
                done += finished
                progress.tell(current.folder, done, total)
                if bar.disable and total and done * 10 // total >= tenth:  # where there is no bar
                    tenth = done * 10 // total + 1
                    say(f"  {done} of {total} trials")

            try:
                loop.measure(plan, loaded, built, current, show)
            except BaseException:
                say(f"unfinished: {_short(current.folder)}; RESUME=1 continues it")
                raise
        current.manifest["wall_s"] = None if again else time.monotonic() - start
        try:
            current.finish()
            path = report.write(current.folder)
        except BaseException:
            how = f"make report RUN={_short(current.folder)}" if ended(current) else "RESUME=1"
            say(f"all is measured; {how} makes the report")
            raise
    say(report.answer(current.folder))
    say(f"report: {_short(path)}")
    return path.parent


def with_tokenizer(loaded: Rig, built: Engine, make: Callable[[Tokenizer], Plan]) -> Plan:
    """Make a plan that must count tokens, with the rig's own server running meanwhile."""
    log = record.log_file(loaded).with_name(f"{loaded.name}-tokenizer.log")
    log.unlink(missing_ok=True)
    say("preparing prompts of exact length")
    with Server(loaded.variant({"SPEC_TYPE": ""}), built, log, measuring=True):
        return make(Tokenizer(loaded.url))


def ended(current: run.Run) -> bool:
    """Whether the disk says so."""
    try:
        return run.read_manifest(current.folder)["ended"] is not None
    except RigError:
        return False


def _short(path: Path) -> str:
    """The path as the user would type it."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was deleted meanwhile
        return str(path)
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _manifest(loaded: Rig, plan: Plan, built: Engine) -> Measured:
    found = card.find(loaded)
    return {
        "plan": plan.to_json(),
        "settings": loaded.settings(),
        "overridden": list(loaded.overridden),
        "prompts_sha256": sha256(plan.prompts) if plan.prompts else None,
        "harness": cast(Harness, facts.harness()),
        "engine": built.info,
        "engine_title": built.title,
        "engines": {arm.name: arm.engine.info for arm in plan.arms if arm.engine},
        "image": os.environ.get("IMAGE_DIGEST"),
        "files": _files(loaded, plan),
        "card": cast(Card, found.describe()) if found else None,
        "host": cast(Host, facts.host()),
        "energy": card.energy_source(found),
        "environment": facts.environment(),
        "wall_s": None,
    }


def _files(loaded: Rig, plan: Plan) -> dict[str, File]:
    """The rig's files, then those that only one arm uses. Raises RigError if one is missing."""
    found = cast(dict[str, File], wanted.describe(loaded))
    known = {file.path for file in wanted.wanted(loaded)}
    for arm in plan.arms:
        variant = loaded.variant(arm.changes)
        process.check_files(variant)
        own = {file.role: file.path for file in wanted.wanted(variant)}
        described = cast(dict[str, File], wanted.describe(variant))
        for role, path in own.items():
            if path not in known:
                known.add(path)
                found[f"{role} of {arm.name}"] = described[role]
    return found
