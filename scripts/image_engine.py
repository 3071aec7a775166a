"""Inside the image build: fetch llama.cpp, build its chat page, or compile it.

Needs the standard library only, so that the compiling stage needs no Python packages.
"""

import argparse
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path

from common.engines.llamacpp import page, source
from common.engines.llamacpp.build import build_from
from common.engines.llamacpp.source import Source
from common.errors import RigError
from common.rig import Rig

MARK = ".gemma-rigs-source.json"
WHY_NOT = "why-not"
"""in the place of a chat page that could not be built: the reason"""
ARGUMENTS = (
    "BACKEND",
    "LLAMA_CPP_COMMIT",
    "LLAMA_CPP_REPOSITORY",
    "LLAMA_CPP_RELEASE",
    "LLAMA_CPP_RELEASE_SHA256",
    "CUDA_VERSION",
    "CUDA_ARCHITECTURES",
    "CMAKE_EXTRA",
)


def say(text: str) -> None:
    print(text, flush=True)


def asked() -> Rig:
    """A rig of which only the engine matters. An empty argument means the default."""
    given = {key: os.environ[key] for key in ARGUMENTS if os.environ.get(key)}
    plain = Rig(folder=Path("image"), backend="cpu", model="none", port=1, ctx_size=256)
    return plain.variant(given)


def fetch(rig: Rig, tree: Path) -> None:
    """Bring the pinned source to `tree`. A pinned commit has no second choice here: the image's
    name promises it."""
    wanted = source.wanted(rig)[0]
    try:
        source.fetch(wanted)
    except RigError as error:
        raise RigError(
            f"{error}\nBehind a proxy that signs its own certificates give CA_BUNDLE=FILE; without "
            "a way to the repository give LLAMA_SRC=FOLDER, or LLAMA_CPP_COMMIT= (empty) for the "
            "pinned source release"
        ) from None
    shutil.move(wanted.folder, tree)
    (tree / MARK).write_text(json.dumps(asdict(wanted)))


def placed(tree: Path) -> Source:
    """What `tree` is, put where it is looked for."""
    mark = tree / MARK
    if not mark.is_file():
        return source.local(tree)
    fetched = Source(**json.loads(mark.read_text()))
    source.place(tree, fetched)
    return fetched


def build_page(tree: Path, target: Path) -> None:
    """Put the chat page of `tree` into `target`, or the reason why there is none: the image is
    built without."""
    target.mkdir()
    try:
        shutil.copytree(page.build(tree, source.number(placed(tree)), say), target / "dist")
    except RigError as error:
        say(f"no chat page: {error}")
        (target / WHY_NOT).write_text(str(error))


def given_page(folder: Path) -> Path:
    """The chat page that `build_page` left in a folder. Raises RigError if it left none."""
    reason = folder / WHY_NOT
    if reason.is_file():
        raise RigError(reason.read_text())
    return folder / "dist"


def build(rig: Rig, tree: Path, target: Path, chat: Path) -> None:
    """Compile `tree` and put the programs and engine.json into `target`. The chat page, or why
    there is none, is in `chat`."""
    fetched = placed(tree)
    tenth = 0

    def progress(done: int, total: int) -> None:
        nonlocal tenth
        if done * 10 // total > tenth:
            tenth = done * 10 // total
            say(f"compiled {done} of {total}")

    again = "call NEW_PAGE=1 make image"
    built = build_from(rig, fetched, say, progress, lambda: given_page(chat), again)
    shutil.copytree(built.server.parent, target)
    say(json.dumps(built.info, indent=2))


def body() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["fetch", "page", "build"])
    parser.add_argument("tree", type=Path, help="the llama.cpp source")
    parser.add_argument("target", type=Path, nargs="?", help="where the page or the programs go")
    parser.add_argument("page", type=Path, nargs="?", help="build: where the page has gone")
    arguments = parser.parse_args()
    try:
        if arguments.verb == "fetch":
            fetch(asked(), arguments.tree)
        elif arguments.verb == "page":
            build_page(arguments.tree, arguments.target)
        else:
            build(asked(), arguments.tree, arguments.target, arguments.page)
    except RigError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    body()
