"""What serving and measuring need first: the card, the engine, the files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tqdm import tqdm

from common.engines.llamacpp import build
from common.engines.llamacpp.build import Engine
from common.files import wanted
from common.files.hub import Progress
from common.files.wanted import Wanted
from common.host import card, driver, room
from common.rig import Rig
from scripts._cli import say


def build_engine(loaded: Rig) -> Engine:
    """The rig's engine, built first if need be."""
    if os.environ.get("LLAMA_SERVER") or build.CONTAINER.is_file():
        return build.find(loaded)
    if not build.is_built(loaded):
        check_driver(loaded)
    with tqdm(unit="step", desc="compiling", disable=None, leave=False) as bar:
        tenth = 0

        def progress(done: int, total: int) -> None:
            nonlocal tenth
            bar.total = total
            bar.update(done - bar.n)
            if bar.disable and done * 10 // total > tenth:
                tenth = done * 10 // total
                say(f"  compiled {done} of {total}")

        return build.build(loaded, say, progress)


def check_driver(loaded: Rig) -> None:
    """Raise RigError before anything is compiled that the driver here could not run. Without a
    driver it may be for another host, which is said."""
    if loaded.backend != "cuda":
        return
    present = driver.find()
    if present is None:
        say("no NVIDIA driver can be reached here; the engine can be built, and runs where one can")
    else:
        note(driver.judge(present, loaded.cuda_version, loaded.cuda_architectures))


def note(verdict: driver.Verdict) -> None:
    """Raise RigError if the driver is too old, and say what is not known of it."""
    if unknown := verdict.refuse():
        say(f"note: {unknown}")


def prepare(loaded: Rig) -> Engine:
    """Card, engine and files, in this order: nothing is fetched for a rig that cannot run."""
    for line in loaded.from_outside():
        say(line)
    take_card(loaded)
    present = driver.check() if loaded.backend == "cuda" else None
    built = build_engine(loaded)
    if present is not None:
        note(driver.of_engine(present, built.info))
    fetch_files(loaded)
    room.check(loaded)
    return built


def take_card(loaded: Rig) -> None:
    """Find the rig's card and let every server of this process see that one only."""
    found = card.find(loaded)
    if found is not None and found.uuid is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = found.uuid


def fetch_files(loaded: Rig, roles: tuple[str, ...] = wanted.ROLES) -> None:
    """The rig's files, fetched if need be, with progress."""
    with download_bar() as progress:
        wanted.fetch(loaded, tqdm.write, progress, roles)


def bring(loaded: Rig, roles: tuple[str, ...] = wanted.ROLES) -> list[Wanted]:
    """Fetch the rig's files and say where they are and how they were checked; returns them."""
    fetch_files(loaded, roles)
    files = [file for file in wanted.wanted(loaded) if file.role in roles]
    for file in files:
        say(f"{file.role}: {file.path}, {wanted.judgement(file)}")
    return files


@contextmanager
def download_bar() -> Iterator[Progress]:
    """Shows bytes, speed and time left; nothing if this is not a terminal."""
    bar: tqdm[NoReturn] | None = None
    current = ""

    def progress(name: str, done: int, total: int) -> None:
        nonlocal bar, current
        if bar is None or name != current:
            if bar is not None:
                bar.close()
            current = name
            # What came in an earlier try must not count as speed.
            bar = tqdm(
                desc=name,
                total=total,
                initial=done,
                unit="B",
                unit_scale=True,
                disable=None,
                leave=False,
            )
        bar.update(done - bar.n)

    try:
        yield progress
    finally:
        if bar is not None:
            bar.close()
