"""What every script shares: the rig argument, one line per error, progress, exit codes."""

import argparse
import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tqdm import tqdm

from common import engine, experiment, files, gpu, prompts, report, rig, run
from common.engine import Engine
from common.errors import RigError
from common.experiment import Plan
from common.rig import ROOT, Rig


def say(text: str) -> None:
    print(text, flush=True)


def parser(text: str | None) -> argparse.ArgumentParser:
    """A parser with the rig folder (or its name) as first argument."""
    found = argparse.ArgumentParser(description=text)
    found.add_argument("rig", metavar="RIG", help="the rig's folder, or its name")
    return found


def load_rig(name: str) -> Rig:
    """The rig at this path, or of this name in the project's folder."""
    folder = Path(name)
    return rig.load(folder if folder.is_dir() else ROOT / name)


def main(body: Callable[[], int | None]) -> None:
    """Run a script's body: errors in one line and exit 1, Ctrl-C 130, SIGTERM 143."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        code = body() or 0
    except RigError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        code = 141
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 (nothing left to write to)
    sys.exit(code)


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)


def build_engine(loaded: Rig) -> Engine:
    """The rig's engine, built first if need be."""
    if os.environ.get("LLAMA_SERVER") or engine.CONTAINER.is_file():
        return engine.find(loaded)
    with tqdm(unit="step", desc="compiling", disable=None, leave=False) as bar:
        tenth = 0

        def progress(done: int, total: int) -> None:
            nonlocal tenth
            bar.total = total
            bar.update(done - bar.n)
            if bar.disable and done * 10 // total > tenth:
                tenth = done * 10 // total
                say(f"  compiled {done} of {total}")

        return engine.build(loaded, say, progress)


def prepare(loaded: Rig) -> Engine:
    """Card, engine and files, in this order: nothing is fetched for a rig that cannot run."""
    gpu.find(loaded)
    built = build_engine(loaded)
    files.fetch(loaded, say)
    return built


def flag(name: str) -> bool:
    """An on/off setting from the environment, such as QUICK=1."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        raise RigError(f"{name}={value}: expected 0 or 1")
    return value == "1"


def measure(loaded: Rig, plan: Plan, out: Path | None) -> int:
    """Measure a plan into a run directory (new, or RESUME=1) and write its report."""
    built = prepare(loaded)
    start = time.monotonic()
    manifest = _manifest(loaded, plan, built)
    resume = flag("RESUME")
    begin = run.resume if resume else run.create
    with begin(loaded, plan.what, manifest, out) as current:
        say(f"{'continuing' if resume else 'measuring'} into {_short(current.folder)}")
        total = len(plan.blocks()) * len(plan.cells)
        with tqdm(total=total, unit="trial", disable=None) as bar:

            def show(finished: int, what: str) -> None:
                bar.set_description(what, refresh=False)
                bar.update(finished)

            try:
                experiment.measure(plan, loaded, built, current, show)
            except BaseException:
                say(f"unfinished: {_short(current.folder)}; RESUME=1 continues it")
                raise
        current.manifest["wall_s"] = None if resume else time.monotonic() - start
        current.finish()
        path = report.write(current.folder)
    say(report.answer(current.folder))
    say(f"report: {_short(path)}")
    return 0


def _short(path: Path) -> str:
    """The path as the user would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _manifest(loaded: Rig, plan: Plan, built: Engine) -> dict[str, Any]:
    card = gpu.find(loaded)
    text = prompts.path(plan.what).read_bytes()
    return {
        "plan": plan.to_json(),
        "settings": loaded.settings(),
        "overridden": list(loaded.overridden),
        "prompts_sha256": hashlib.sha256(text).hexdigest(),
        "harness": run.harness(),
        "engine": built.info,
        "engine_title": built.title,
        "image": os.environ.get("IMAGE_DIGEST"),
        "files": files.describe(loaded),
        "card": card.describe() if card else None,
        "host": run.host(),
        "wall_s": None,
    }
