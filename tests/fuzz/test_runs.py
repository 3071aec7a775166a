"""A run directory with damaged files: reports, compare, the map and MCP read it, or say in one line
why not, and none of them hangs.

FUZZ=20000 tries so many, FUZZ_SEED=7 others than the usual ones.
"""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common import report
from common.compare import compare
from common.compare import map as rig_map
from common.errors import RigError
from common.mcp.run_tools import RunTools
from common.measure import resume, run
from common.rig import Rig
from tests.helpers.runs import SPEED, SWEEP, copied

CHUNK = 60
COUNT = max(CHUNK, int(os.environ.get("FUZZ") or 240))
SEED = int(os.environ.get("FUZZ_SEED") or 14)
KEPT = 4  # lines of the journal: enough to be read, few enough to be quick
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 5, 2**70, 1e308, float("inf"), float("nan"), "", "x", "\ud800", "2026", [],
    ["x"], [[]], {}, {"x": None}, [None] * 3,
)  # fmt: skip
NAMES = (run.MANIFEST, run.JOURNAL, run.STARTS, run.SUMMARY)


def _bytes(chance: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(max(1, len(out)))
        how = chance.randrange(5)
        if how == 0 and out:
            out[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            del out[at : at + chance.randrange(1, 40)]
        elif how == 2:
            out[at:at] = out[at : at + chance.randrange(1, 40)]
        elif how == 3:
            out[at : at + 8] = b"\0" * 8
        else:
            del out[at:]
    return bytes(out)


def _values(chance: random.Random, data: bytes) -> bytes:
    """Another value, or none, somewhere in the JSON of a file, or of one of its lines."""
    whole = [data] if data.lstrip()[:2] == b"{\n" else data.splitlines()
    number = chance.randrange(len(whole))
    found = json.loads(whole[number])
    place = found
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.7:
            place = place[key]
            continue
        if chance.random() < 0.25:
            del place[key]
        else:
            place[key] = chance.choice(VALUES)
        break
    whole[number] = json.dumps(found).encode()
    return b"\n".join(whole) + b"\n"


@pytest.fixture(params=[SPEED, SWEEP], ids=["speed", "sweep"])
def right(request: pytest.FixtureRequest, tiny: Rig) -> Path:
    """A finished run in the rig's own folder, short."""
    folder = copied(request.param, tiny.runs_folder / request.param.name)
    for name in (run.JOURNAL, run.STARTS):
        lines = (folder / name).read_bytes().split(b"\n")
        if request.param == SPEED:
            (folder / name).write_bytes(b"\n".join(lines[: 4 * KEPT]) + b"\n")
    return folder


def readers(rig: Rig, folder: Path, chance: random.Random) -> list[Callable[[], object]]:
    """Those that take no time, and one of those that do."""
    tools = RunTools(rig.folder)
    slow: list[Callable[[], object]] = [
        lambda: compare.compare([folder]),
        lambda: rig_map.write(rig, lambda _said: None),
        lambda: report.write(folder),
    ]
    # Drawing takes longest by far: most are only read.
    (chosen,) = chance.choices(slow, (6, 2, 1))
    return [
        chosen,
        lambda: tools.list_runs(),
        lambda: tools.read_run(folder.name),
        lambda: tools.recommend("chat"),
        lambda: report.answer(folder),
        lambda: resume.set_aside(folder),
        lambda: run.read_lines(folder, run.JOURNAL),
    ]


def read_by_all(rig: Rig, folder: Path, chance: random.Random) -> tuple[int, int]:
    """How many read it, and how many refused it in a line. Anything else is a failure."""
    well = refused = 0
    for read in readers(rig, folder, chance):
        try:
            found = read()
            if hasattr(found, "model_dump_json"):
                found.model_dump_json()
            well += 1
        except RigError as error:
            if "\n" in str(error):
                raise AssertionError(f"more than a line: {error}") from error
            refused += 1
    return well, refused


@pytest.mark.parametrize("chunk", range(0, COUNT, 2 * CHUNK))
def test_a_damaged_run_is_read_or_refused_in_one_line(
    tiny: Rig, right: Path, tmp_path: Path, chunk: int
) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(right, kept)
    well = refused = 0
    for number in range(chunk, chunk + CHUNK):
        chance = random.Random(f"{SEED} {number}")  # noqa: S311 (the same each time)
        shutil.rmtree(right)
        shutil.copytree(kept, right)
        name = chance.choice(NAMES)
        damage = chance.choice((_bytes, _values, _values))
        (right / name).write_bytes(damage(chance, (right / name).read_bytes()))
        try:
            more = read_by_all(tiny, right, chance)
        except Exception as error:
            raise AssertionError(f"{SEED} {number}: {name}, {damage.__name__}") from error
        well, refused = well + more[0], refused + more[1]
    assert well > CHUNK
    assert refused > CHUNK
