"""Map: where the drafter pays, by tokens in and requests at once, from a rig's runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import atomic, kinds
from common.errors import RigError
from common.measure import figures, page
from common.measure.run import fits, read_manifest
from common.measure.summary import SpeedUp
from common.report import SUMMARY, read_summary
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


def write(rig: Rig, say: Callable[[str], object]) -> Path:
    """Write MAP.md and its figure beside the rig's runs; returns the path of MAP.md.

    Takes the last finished run of each kind; a quick run only where there is no other. `say` is
    told of runs that are damaged and left out. Raises RigError if there is none at all, or if the
    map cannot be written.
    """
    drawn = [kind.name for kind in kinds.KINDS if kind.depth_and_load]
    latest = [found for name in drawn if (found := _latest(rig, name, say))]
    runs = [folder for folder, _places in latest]
    if not runs:
        raise RigError(f"{rig.name} has no finished run of {', '.join(drawn)} yet; make one first")
    places = sorted(
        (place for _folder, found in latest for place in found),
        key=lambda place: (place.depth, place.at_once, place.arm),
    )
    home = rig.runs_folder.parent
    path = home / FILE
    try:
        figures.places(home / FIGURE, [(p.depth, p.at_once, p.up) for p in _best(places)])
        atomic.write(path, _text(rig, places, runs))
    except OSError as error:
        raise RigError(
            f"{path} cannot be written: {error.strerror or error}",
            fix="make room or give permission there",
        ) from None
    return path


def _latest(rig: Rig, kind: str, say: Callable[[str], object]) -> tuple[Path, list[Place]] | None:
    """The last finished run with its places; a full one is preferred to a quick one."""
    found = []
    for folder in rig.runs_folder.glob(f"*-{kind}-*"):
        try:
            manifest = read_manifest(folder)
            if manifest["what"] != kind or not manifest["ended"]:
                continue
            if (folder / SUMMARY).is_file():
                with fits(folder):
                    places = list(_places(read_summary(folder), folder))
                    quick = manifest["plan"]["quick"]
                found.append((not quick, manifest["started"], folder, places))
        except RigError as error:
            say(f"left out: {error}")
    return max(found, key=lambda one: one[:3])[2:] if found else None


def _places(summary: dict[str, Any], folder: Path) -> Iterator[Place]:
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
