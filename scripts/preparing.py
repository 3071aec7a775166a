"""What serving and measuring need first: the card, the engine, the files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from common import engine, files, gpu
from common.engine import Engine
from common.hub import Progress
from common.rig import Rig
from scripts.cli import say


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
    fetch_files(loaded)
    return built


def fetch_files(loaded: Rig, roles: tuple[str, ...] = files.ROLES) -> None:
    """The rig's files, fetched if need be, with progress."""
    with download_bar() as progress:
        files.fetch(loaded, tqdm.write, progress, roles)


@contextmanager
def download_bar() -> Iterator[Progress]:
    """Shows bytes, speed and time left; nothing if this is not a terminal."""
    with tqdm(unit="B", unit_scale=True, unit_divisor=1000, disable=None, leave=False) as bar:

        def progress(name: str, done: int, total: int) -> None:
            if bar.desc != f"{name}: ":
                # What came in an earlier try must not count as speed.
                bar.initial = done
                bar.reset(total)
                bar.set_description(name, refresh=False)
                bar.n = done
            bar.update(done - bar.n)

        yield progress
