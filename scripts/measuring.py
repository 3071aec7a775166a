"""What every measuring script shares: the run directory, progress, and the report."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from common.digest import sha256
from common.engines.llamacpp.build import Engine
from common.files import wanted
from common.host import card as gpu
from common.host import facts
from common.kinds import report
from common.measure import loop, run
from common.measure.plan import Plan
from common.measure.texts import Tokenizer
from common.rig import Rig
from common.serving import process, record
from common.serving.process import Server
from scripts.cli import flag, load_rig, parser, say
from scripts.preparing import prepare


def arguments(text: str | None) -> tuple[Rig, Path | None]:
    """The rig on the command line, and the folder for the run if one is named."""
    line = parser(text)
    line.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    found = line.parse_args()
    return load_rig(found.rig), found.out


def measure(loaded: Rig, plan: Plan, out: Path | None, built: Engine | None = None) -> int:
    """Measure a plan into a run directory (new, or RESUME=1) and write its report.

    built: what `prepare` gave, where it was called already.
    """
    measure_into(loaded, plan, out, built)
    return 0


def measure_into(loaded: Rig, plan: Plan, out: Path | None, built: Engine | None = None) -> Path:
    """The same; returns the run directory."""
    built = built or prepare(loaded)
    start = time.monotonic()
    manifest = _manifest(loaded, plan, built)
    resume = flag("RESUME")
    begin = run.resume if resume else run.create
    with begin(loaded, plan.what, manifest, out) as current:
        for name, text in plan.attached.items():
            (current.folder / name).write_text(text, encoding="utf-8")
        say(f"{'continuing' if resume else 'measuring'} into {_short(current.folder)}")
        known = sum(len(plan.asked(turn)) for turn, _arm in plan.blocks())
        total = plan.at_most or known
        with tqdm(total=total, unit="trial", disable=None) as bar:
            done = tenth = 0

            def show(finished: int, what: str) -> None:
                nonlocal done, tenth
                bar.set_description(what, refresh=False)
                bar.update(finished)
                done += finished
                if bar.disable and total and done * 10 // total >= tenth:  # where there is no bar
                    tenth = done * 10 // total + 1
                    say(f"  {done} of {total} trials")

            try:
                loop.measure(plan, loaded, built, current, show)
            except BaseException:
                say(f"unfinished: {_short(current.folder)}; RESUME=1 continues it")
                raise
        current.manifest["wall_s"] = None if resume else time.monotonic() - start
        current.finish()
        try:
            path = report.write(current.folder)
        except BaseException:
            say(f"all is measured; make report RUN={_short(current.folder)} makes the report")
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


def _short(path: Path) -> str:
    """The path as the user would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _manifest(loaded: Rig, plan: Plan, built: Engine) -> dict[str, Any]:
    card = gpu.find(loaded)
    return {
        "plan": plan.to_json(),
        "settings": loaded.settings(),
        "overridden": list(loaded.overridden),
        "prompts_sha256": sha256(plan.prompts) if plan.prompts else None,
        "harness": facts.harness(),
        "engine": built.info,
        "engine_title": built.title,
        "engines": {arm.name: arm.engine.info for arm in plan.arms if arm.engine},
        "image": os.environ.get("IMAGE_DIGEST"),
        "files": _files(loaded, plan),
        "card": card.describe() if card else None,
        "host": facts.host(),
        "wall_s": None,
    }


def _files(loaded: Rig, plan: Plan) -> dict[str, Any]:
    """The rig's files, then those that only one arm uses. Raises RigError if one is missing."""
    found = wanted.describe(loaded)
    known = {file.path for file in wanted.wanted(loaded)}
    for arm in plan.arms:
        variant = loaded.variant(arm.changes)
        process.check_files(variant)
        own = {file.role: file.path for file in wanted.wanted(variant)}
        described = wanted.describe(variant)
        for role, path in own.items():
            if path not in known:
                known.add(path)
                found[f"{role} of {arm.name}"] = described[role]
    return found
