"""What serving and measuring need first: the card, the engine, the files."""

import os

from tqdm import tqdm

from common import engine, files, gpu
from common.engine import Engine
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
    files.fetch(loaded, say)
    return built
