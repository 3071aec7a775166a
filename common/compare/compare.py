"""Compare: every figure of any runs side by side, with published ones, and ratios between cards.

A ratio is given only between runs that are equal in all but the hardware; for every other pair of a
kind it is said what differs. docs/METHOD.md explains it to users.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common import kinds, rig
from common.compare import conditions, published
from common.compare.runs import CHANGED, KNOWN_ANSWER, QUICK, Evidence, Speeds, read
from common.errors import RigError
from common.measure import stats
from common.measure.page import LEVEL
from common.measure.quantities import Row
from common.measure.rows import BASELINE, significant
from common.measure.sections import Beside, Found, Over, Pair, Quoted, Ratio, Run
from common.rig import ROOT

SCHEMA = 1


def compare(folders: Sequence[Path], left_out: Callable[[RigError], object] | None = None) -> Found:
    """Every figure of these runs, JSON-serialisable; held to schemas/compare-1.json by a test.

    Raises RigError for a folder that is no finished run, that this version cannot read, or that
    holds the same samples as another one. Who gives `left_out` is told of the first two instead,
    and gets the others.
    """
    runs = []
    for folder in folders:
        try:
            runs.append(read(Path(folder)))
        except RigError as error:
            if left_out is None:
                raise
            left_out(error)
    if not runs:
        raise RigError("no finished run to compare; make one first (make speed in a rig)")
    _no_twins(runs)
    runs.sort(key=lambda e: (kinds.NAMES.index(e.what), e.rig, e.manifest["started"], e.digest))
    names = _names(runs)
    found: Found = {
        "schema": SCHEMA,
        "what": "compare",
        "runs": [_run(e, name) for e, name in zip(runs, names, strict=True)],
        "figures": [
            {"run": name, "rig": e.rig, "what": e.what, **row}
            for e, name in zip(runs, names, strict=True)
            for row in kinds.of(e.what).figures(e.summary, e.manifest)
        ],
        "published": _published(runs, names),
        "pairs": [
            _pair(runs[i], runs[j], names[i], names[j])
            for i in range(len(runs))
            for j in range(i + 1, len(runs))
            if runs[i].what == runs[j].what and kinds.of(runs[i].what).paired
        ],
        "answer": [],
    }
    found["answer"] = _answer(found)
    return found


def _no_twins(runs: Sequence[Evidence]) -> None:
    seen: dict[str, Path] = {}
    for one in runs:
        if one.digest in seen:
            raise RigError(
                f"{one.folder} holds the same samples as {seen[one.digest]}: it is the "
                "same run; leave one of them out"
            )
        seen[one.digest] = one.folder


def _names(runs: Sequence[Evidence]) -> list[str]:
    """Rig and folder; runs of two hosts that share both are told apart by their journals."""
    plain = [one.name for one in runs]
    return [
        name if plain.count(name) == 1 else f"{name}@{one.digest[:6]}"
        for name, one in zip(plain, runs, strict=True)
    ]


def _run(one: Evidence, name: str) -> Run:
    manifest = one.manifest
    folder = one.folder.resolve()
    inside = folder.is_relative_to(ROOT)
    return {
        "run": name,
        "rig": one.rig,
        "what": one.what,
        "path": str(folder.relative_to(ROOT)) if inside else f"brought from elsewhere: {name}",
        "started": manifest["started"],
        "quick": one.quick,
        "hardware": conditions.hardware(manifest),
        "card": bool(manifest.get("card")),
        "engine": manifest.get("engine_title"),
        "files": {
            role: {"name": file["name"], "sha256": file["sha256"]}
            for role, file in (manifest.get("files") or {}).items()
        },
        "prompts_sha256": manifest.get("prompts_sha256"),
        "harness": manifest["harness"]["commit"],
        "journal_sha256": one.digest,
        "answer": one.answer(),
        "labels": one.labels(),
    }


def _published(runs: Sequence[Evidence], names: Sequence[str]) -> list[Quoted]:
    """Every published figure, once for each run that measured the like, or once alone."""
    rows: list[Quoted] = []
    for folder in sorted(rig.all_rigs()):
        for figure in published.load(folder):
            beside: list[Beside | None] = [
                _beside(one, name, row, figure)
                for one, name in zip(runs, names, strict=True)
                if (one.rig, one.what) == (folder.name, figure["what"])
                and (row := _counterpart(one, figure)) is not None
            ]
            head: Any = {
                "rig": folder.name,
                **{key: value for key, value in figure.items() if key != "conditions"},
                "card": figure["conditions"]["card"],
                "words": published.in_words(figure),
                "conditions": published.conditions_in_words(figure),
            }
            rows += [head | {"beside": found} for found in beside or [None]]
    return rows


def _counterpart(one: Evidence, figure: dict[str, Any]) -> Row | None:
    """The measured figure of the same quantity, place and arm (or draft length)."""
    for row in kinds.of(one.what).figures(one.summary, one.manifest):
        if (row["quantity"], row["place"]) != (figure["quantity"], figure["place"] or ""):
            continue
        if figure["arm"] is not None:
            if row["arm"] == figure["arm"]:
                return row
            continue
        wanted = figure["conditions"].get("draft_length")
        if row["arm"] != BASELINE and wanted in (None, _length(one, row["arm"])):
            return row
    return None


def _length(one: Evidence, arm: str) -> int | None:
    """The draft length of an arm; None for one that does not draft, or is not known."""
    changes = one.manifest["plan"]["arms"].get(arm)
    if changes is None:
        return None
    settings = {**one.manifest["settings"], **changes}
    length = settings.get("SPEC_DRAFT_N_MAX") if settings.get("SPEC_TYPE") else None
    return int(length) if length else None


def _beside(one: Evidence, name: str, row: Row, figure: dict[str, Any]) -> Beside:
    """A measured figure beside a published one; a ratio only where conditions are equal."""
    differs = conditions.with_published(one.manifest, row["arm"], figure)
    refused = ([one.changed] if one.changed else []) + differs.refuse
    ratio: Over | None = None
    if not refused and figure["value"] and figure["unit"] in ("x", "tokens/s"):
        over, low, high = (
            None if value is None else significant(value / figure["value"])
            for value in (row["value"], row["low"], row["high"])
        )
        ratio = {"ratio": over, "low": low, "high": high}
    return {
        "run": name,
        "arm": row["arm"],
        "value": row["value"],
        "low": row["low"],
        "high": row["high"],
        "unit": row["unit"],
        "ratio": ratio,
        "refused": refused,
        "labels": differs.label,
    }


def _pair(a: Evidence, b: Evidence, name_a: str, name_b: str) -> Pair:
    differs = conditions.between(a.manifest, b.manifest)
    changed = [f"{name}: {one.changed}" for one, name in ((a, name_a), (b, name_b)) if one.changed]
    refused = changed + differs.refuse
    same = conditions.hardware(a.manifest) == conditions.hardware(b.manifest)
    drifts = [
        f"{label} in the {side}"
        for one, side in ((a, "first"), (b, "second"))
        for label in one.labels()
        if label.startswith("drift")
    ]
    return {
        "what": a.what,
        "first": name_a,
        "second": name_b,
        "between": "repeats" if same else "hardware",
        "refused": refused,
        "labels": differs.label + drifts,
        "ratios": [] if refused else _ratios(a, b),
    }


def _ratios(a: Evidence, b: Evidence) -> list[Ratio]:
    """First over second, of each arm that both have: of its speed, and of what drafting gains."""
    rows: list[Ratio] = []
    others = b.manifest["plan"]["arms"]
    for arm in a.manifest["plan"]["arms"]:
        differs = conditions.arms(a.manifest, b.manifest, arm) if arm in others else ["in one only"]
        if differs:
            rows.append(_ratio("tokens_per_second", arm, "", None, differs))
            continue
        ours, theirs = a.speeds(arm), b.speeds(arm)
        base = _baseline(arm)
        base_ours, base_theirs = a.speeds(base), b.speeds(base)
        for place in ours:
            if not ours[place].keys() & theirs.get(place, {}).keys():
                continue
            up = stats.speed_up(theirs[place], ours[place])
            rows.append(_ratio("tokens_per_second", arm, place, up, []))
            if arm == base:
                continue
            their_gain = _gain(base_theirs.get(place, {}), theirs[place])
            our_gain = _gain(base_ours.get(place, {}), ours[place])
            if their_gain.keys() & our_gain.keys():
                up = stats.speed_up(their_gain, our_gain)
                rows.append(_ratio("speed_up", arm, place, up, []))
    return rows


def _baseline(arm: str) -> str:
    """The arm without drafter that an arm is compared with; a sweep has one per KV layout."""
    _, comma, layout = arm.partition(", ")
    return f"{BASELINE}{comma}{layout}" if comma else BASELINE


def _gain(baseline: Speeds, speeds: Speeds) -> dict[stats.Key, float]:
    return {key: speeds[key] / baseline[key] for key in baseline.keys() & speeds.keys()}


def _ratio(
    quantity: str, arm: str, place: str, up: stats.SpeedUp | None, refused: list[str]
) -> Ratio:
    return {
        "quantity": quantity,
        "arm": arm,
        "place": place,
        "ratio": significant(up.ratio) if up else None,
        "low": significant(up.low) if up else None,
        "high": significant(up.high) if up else None,
        "refused": refused,
    }


def _answer(found: Found) -> list[str]:
    """What it all comes to, in a few sentences."""
    runs = found["runs"]
    rigs, hosts = {one["rig"] for one in runs}, {one["hardware"] for one in runs}
    cards = {one["hardware"] for one in runs if one["card"]}
    count = f"{len(cards)} of it with a card" if cards else "none of it a card"
    said = [
        f"{_many(len(runs), 'finished run')} of {_many(len(rigs), 'rig')}, measured on "
        f"{_many(len(hosts), 'kind')} of hardware, {count}."
    ]
    said += _speeds(runs)
    if any(KNOWN_ANSWER in one["labels"] for one in runs):
        said.append(
            "The known-answer pair's runs check the measuring; their speeds are in the "
            "tables and say nothing about Gemma."
        )
    ratios = [said_of for pair in found["pairs"] if (said_of := _ratio_in_words(pair))]
    said += ratios or [
        "No two of these runs are equal in all but the hardware, so no ratio "
        "between cards is given."
    ]
    quoted = {row["rig"] for row in found["published"]}
    beside = {row["rig"] for row in found["published"] if row["beside"]}
    if quoted:
        alone = (
            f"of {len(beside)} there is a measured figure too"
            if beside
            else "none of them has been measured here"
        )
        said.append(f"Published figures are quoted for {_many(len(quoted), 'rig')}; {alone}.")
    return said


def _speeds(runs: Sequence[Run]) -> list[str]:
    """The answer of each rig's last speed run, a full one before a quick one."""
    last: dict[str, Run] = {}
    for one in runs:
        if one["what"] == "speed" and KNOWN_ANSWER not in one["labels"]:
            old = last.get(one["rig"])
            if old is None or old["quick"] >= one["quick"]:
                last[one["rig"]] = one
    warnings = (CHANGED, QUICK)
    return [
        f"{rig}{''.join(f' ({label})' for label in one['labels'] if label.startswith(warnings))}: "
        f"{one['answer']}"
        for rig, one in last.items()
    ]


def _ratio_in_words(pair: Pair) -> str | None:
    """The first ratio of a pair on different hardware: without drafter, at its first place."""
    best = next((row for row in pair["ratios"] if row["ratio"] is not None), None)
    if pair["between"] != "hardware" or best is None:
        return None
    where = f"{best['arm']}{', ' if best['place'] else ''}{best['place']}"
    interval = (
        "no interval"
        if best["low"] is None
        else f"{LEVEL}: {best['low']:.3f} to {best['high']:.3f}"
    )
    return (
        f"{pair['first']} runs at {best['ratio']:.3f} times the speed of {pair['second']} "
        f"({where}; {interval})."
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
