"""Inside the image build: bring CUDA's compiler, fetch llama.cpp, build its page, or compile it.

Needs the standard library only, so that the compiling stage needs no Python packages.
"""

import argparse
import json
import os
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

from common.engines.llamacpp import page, source, toolkit
from common.engines.llamacpp.build import INFO, build_from
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


def bring_toolkit(rig: Rig) -> None:
    """Bring the CUDA compiler of CUDA_VERSION, where the stage has none."""
    if rig.backend == "cuda" and rig.cuda_version:
        found = toolkit.get(rig.cuda_version, say)
        say(f"CUDA {rig.cuda_version}: nvcc {found.release()}, {found.nvcc}")


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


def build_page(_rig: Rig, tree: Path, target: Path) -> None:
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

    cached = shutil.which("ccache")
    if cached:
        subprocess.run([cached, "--zero-stats"], check=True, stdout=subprocess.DEVNULL)
    again = "call NEW_PAGE=1 make image"
    built = build_from(rig, fetched, say, progress, lambda: given_page(chat), again)
    # llama-quantize is for make bench-repack, which runs on a host.
    shutil.copytree(built.server.parent, target, ignore=shutil.ignore_patterns("llama-quantize"))
    if cached:
        built.info["compile"]["cache"] = statistics(cached)
        (target / INFO).write_text(json.dumps(built.info, indent=2) + "\n")
    say(json.dumps(built.info, indent=2))


def statistics(ccache: str) -> dict[str, int]:
    """How many files were compiled, and how many came from the cache of an earlier image."""
    line = [ccache, "--print-stats"]
    text = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    found = dict(entry.split("\t") for entry in text.splitlines() if entry.count("\t") == 1)
    hits = int(found["direct_cache_hit"]) + int(found["preprocessed_cache_hit"])
    return {"compiled": int(found["cache_miss"]), "from_cache": hits}


def body() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(required=True)
    verbs.add_parser("toolkit").set_defaults(act=bring_toolkit)
    fetching = verbs.add_parser("fetch")
    fetching.set_defaults(act=fetch)
    paging = verbs.add_parser("page")
    paging.set_defaults(act=build_page)
    building = verbs.add_parser("build")
    building.set_defaults(act=build)
    for verb in (fetching, paging, building):
        verb.add_argument("tree", type=Path, help="the llama.cpp source")
    paging.add_argument("target", type=Path, help="where the page goes")
    building.add_argument("target", type=Path, help="where the programs go")
    building.add_argument("chat", type=Path, help="where the page has gone")
    arguments = vars(parser.parse_args())
    act = arguments.pop("act")
    try:
        act(asked(), **arguments)
    except RigError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    body()
