"""Map: where the drafter pays, by tokens in and requests at once, from a rig's runs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import kinds
from common.errors import RigError
from common.measure import figures, page
from common.measure.run import read_manifest
from common.measure.summary import SpeedUp
from common.report import SUMMARY
from common.rig import Rig

FILE = "MAP.md"
FIGURE = "map.svg"


@dataclass(frozen=True)
class Place:
    """One measured place: tokens in front of the reply, requests at once, and the speed-up."""

    depth: int
    at_once: int
    arm: str
    up: SpeedUp
    run: str


def write(rig: Rig) -> Path:
    """Write MAP.md and its figure beside the rig's runs; returns the path of MAP.md.

    Takes the last finished run of each kind; a quick run only where there is no other.
    Raises RigError if there is none at all.
    """
    drawn = [kind.name for kind in kinds.KINDS if kind.depth_and_load]
    runs = [found for name in drawn if (found := _latest(rig, name))]
    if not runs:
        raise RigError(f"{rig.name} has no finished run of {', '.join(drawn)} yet; make one first")
    places = sorted(
        (place for folder in runs for place in _places(folder)),
        key=lambda place: (place.depth, place.at_once, place.arm),
    )
    home = rig.runs_folder.parent
    figures.places(home / FIGURE, [(p.depth, p.at_once, p.up) for p in _best(places)])
    path = home / FILE
    path.write_text(_text(rig, places, runs), encoding="utf-8")
    return path


def _latest(rig: Rig, kind: str) -> Path | None:
    """The last finished run; a full one is preferred to a quick one."""
    found = []
    for folder in rig.runs_folder.glob(f"*-{kind}-*"):
        manifest = read_manifest(folder)
        if manifest["what"] == kind and manifest["ended"] and (folder / SUMMARY).is_file():
            found.append((not manifest["plan"]["quick"], manifest["started"], folder))
    return max(found)[2] if found else None


def _places(folder: Path) -> Iterator[Place]:
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    if summary["what"] == "longctx":
        for row in summary["rows"]:
            if row["speed_up"]:
                yield Place(row["depth"], 1, row["arm"], row["speed_up"], folder.name)
        return
    for row in summary["ratios"]:
        depth = _typical_depth(summary, row["kind"])
        for layout, up in row["drafter"].items():
            if up:
                yield Place(depth, row["at_once"], f"drafter, {layout}", up, folder.name)


def _typical_depth(summary: dict[str, Any], kind: str) -> int:
    """The mean of the tokens in of a kind's shapes: what 512/128 and 128/512 come to is 320."""
    shapes = {row["shape"].split("/")[0] for row in summary["rows"] if row["kind"] == kind}
    numbers = [int(part) for shape in shapes for part in shape.split("-")]
    return round(sum(numbers) / len(numbers))


def _best(places: list[Place]) -> list[Place]:
    """Per place the arm with the highest speed-up: what the card can have there."""
    best: dict[tuple[int, int], Place] = {}
    for place in places:
        key = (place.depth, place.at_once)
        if key not in best or place.up["ratio"] > best[key].up["ratio"]:
            best[key] = place
    return list(best.values())


def _text(rig: Rig, places: list[Place], runs: list[Path]) -> str:
    rows = [
        [
            f"{p.depth:,}",
            str(p.at_once),
            p.arm,
            page.ratio(p.up),
            page.interval(p.up),
            p.up["verdict"],
            p.run,
        ]
        for p in places
    ]
    head = ["tokens in", "at once", "arm", "speed-up", page.LEVEL, "verdict", "run"]
    links = "\n".join(f"- [{folder.name}](runs/{folder.name}/REPORT.md)" for folder in runs)
    return (
        "\n\n".join(
            [
                f"# Where the drafter pays: {rig.name}",
                f"![Speed-up by tokens in and requests at once]({FIGURE})",
                "Per place the best arm that was measured. Everything "
                "between the places is not measured. ",
                "For batches, *tokens in* is the mean of their prompts' lengths.",
                page.table(head, rows),
                "Made from the last finished run of each kind:",
                links,
            ]
        )
        + "\n"
    )
