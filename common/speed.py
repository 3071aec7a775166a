"""Speed: which arms and cells `make speed` measures, and what is made of the samples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import client, pair, prompts, run, stats, summary
from common.errors import RigError
from common.experiment import Arm, Cell, Plan, Round
from common.rig import Rig

TOKENS = 256
QUICK_TOKENS = 64
BASELINE = "none"
GREEDY = {"temperature": 0, "seed": 1}
SAMPLED = {"temperature": 0.8, "seed": 1}


def plan(rig: Rig, quick: bool = False) -> Plan:
    """Six prompts; three greedy rounds, one at temperature 0.8, and the drift check.

    A quick plan has three prompts, 64 tokens and one greedy round.
    """
    texts = prompts.load("speed")
    names = list(texts)[: 3 if quick else None]
    tokens = QUICK_TOKENS if quick else TOKENS
    cells = [Cell(name, [client.chat(texts[name], tokens)]) for name in names]
    rounds = [Round(f"greedy-{i + 1}", "greedy", GREEDY) for i in range(1 if quick else 3)]
    if not quick:
        rounds.append(Round("sampled-1", "sampled", SAMPLED))
    rounds.append(Round("drift", "drift", GREEDY))
    return Plan("speed", arms(rig), cells, rounds, quick)


def arms(rig: Rig) -> list[Arm]:
    """No drafter first, then every draft type and length that tpu.env names."""
    types = rig.speed_spec_types or ((rig.spec_type,) if rig.drafts and rig.spec_type else ())
    found = [Arm(BASELINE, {"SPEC_TYPE": ""})]
    for kind in types:
        change = {"SPEC_TYPE": kind.replace("+", ",")}
        prefix = f"{kind.replace(',', '+')} " if len(types) > 1 else ""
        if not rig.variant(change).needs_drafter:
            found.append(Arm(kind.replace(",", "+"), change))
            continue
        for length in rig.speed_n_max or (rig.spec_draft_n_max or 1,):
            found.append(Arm(f"{prefix}n={length}", {**change, "SPEC_DRAFT_N_MAX": str(length)}))
    if len(found) == 1:
        raise RigError(
            f"{rig.name}: nothing to compare with no drafter; set SPEC_TYPE and SPEC_DRAFT_MODEL, "
            "or SPEED_SPEC_TYPES"
        )
    return found


def summarise(folder: Path) -> dict[str, Any]:
    """Every figure of a speed report, from the run directory alone."""
    manifest = run.read_manifest(folder)
    lines = run.read_lines(folder, run.JOURNAL)
    trials = [line for line in lines if line["failed"] is None]
    starts = run.read_lines(folder, run.STARTS)
    rounds = manifest["plan"]["rounds"]
    kinds = {name: turn["kind"] for name, turn in rounds.items()}
    arm_names = list(manifest["plan"]["arms"])
    by_kind = {
        kind: [trial for trial in trials if kinds[trial["round"]] == kind]
        for kind in ("greedy", "sampled", "drift")
    }
    return {
        "schema": 1,
        "what": "speed",
        "rig": manifest["rig"],
        "quick": manifest["plan"]["quick"],
        "complete": manifest["ended"] is not None,
        "arms": [_arm(name, by_kind["greedy"], trials, starts) for name in arm_names],
        "sampled": [_speed(name, by_kind["sampled"]) for name in arm_names],
        "cells": _cells(arm_names, manifest, by_kind["greedy"]),
        "drift": _drift(manifest, by_kind),
        "equal_text": [_equal_text(name, by_kind["greedy"]) for name in arm_names],
        "flags": _flags(lines, manifest),
        "known_answer": _known_answer(manifest, by_kind["greedy"]),
        "time": summary.time_spent(manifest, lines, starts),
    }


def _speeds(trials: list[dict[str, Any]], arm: str) -> dict[stats.Key, float]:
    return {
        (trial["cell"], trial["round"]): trial["samples"][0]["predicted_per_second"]
        for trial in trials
        if trial["arm"] == arm
    }


def _speed(arm: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Speed, speed-up and kept of one arm over some trials; absent values are None."""
    speeds = _speeds(trials, arm)
    found: dict[str, Any] = {"arm": arm, "tokens_per_second": None, "speed_up": None}
    if speeds:
        found["tokens_per_second"] = summary.rounded(stats.geometric_mean(list(speeds.values())))
    baseline = _speeds(trials, BASELINE)
    if arm != BASELINE and speeds.keys() & baseline.keys():
        up = stats.speed_up(baseline, speeds)
        found["speed_up"] = {
            "ratio": summary.rounded(up.ratio),
            "low": summary.rounded(up.low),
            "high": summary.rounded(up.high),
            "round_spread": summary.rounded(up.round_spread),
            "verdict": up.verdict,
        }
    found["kept"] = summary.kept([trial for trial in trials if trial["arm"] == arm])
    return found


def _arm(
    arm: str,
    greedy: list[dict[str, Any]],
    trials: list[dict[str, Any]],
    starts: list[dict[str, Any]],
) -> dict[str, Any]:
    own = [trial for trial in trials if trial["arm"] == arm]
    ready = [start["memory_ready_mib"] for start in starts if start["arm"] == arm]
    ttft = [trial["samples"][0]["ttft_ms"] for trial in greedy if trial["arm"] == arm]
    measured = [value for value in ttft if value is not None]
    return {
        **_speed(arm, greedy),
        "ttft_ms": summary.rounded(stats.geometric_mean(measured)) if measured else None,
        "memory_mib": {
            "process_ready": _largest([memory["process"] for memory in ready]),
            "process_peak": _largest([trial["memory_mib"]["process_peak"] for trial in own]),
            "card_ready": _largest([memory["card"] for memory in ready]),
            "card_peak": _largest([trial["memory_mib"]["card"] for trial in own]),
        },
    }


def _cells(
    arm_names: list[str], manifest: Mapping[str, Any], greedy: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    rows = []
    for cell in manifest["plan"]["cells"]:
        own = [trial for trial in greedy if trial["cell"] == cell]
        for arm in arm_names:
            speed = _speed(arm, own)
            up = speed["speed_up"]
            rows.append({**speed, "cell": cell, "speed_up": up["ratio"] if up else None})
    return rows


def _drift(manifest: Mapping[str, Any], by_kind: Mapping[str, Any]) -> dict[str, Any]:
    arm = next(iter(manifest["plan"]["arms"]))
    first_round = next(iter(manifest["plan"]["rounds"]))
    first = {cell: v for (cell, turn), v in _speeds(by_kind["greedy"], arm).items()
             if turn == first_round}  # fmt: skip
    again = {cell: v for (cell, _), v in _speeds(by_kind["drift"], arm).items()}
    return {"arm": arm, "change": summary.rounded(stats.drift(first, again))}


def _equal_text(arm: str, greedy: list[dict[str, Any]]) -> dict[str, Any]:
    """Replies equal to the baseline's of the same cell and round; for the baseline itself, to
    its own first round: the control."""
    first = min((trial["round"] for trial in greedy), default=None)
    texts = {(t["arm"], t["cell"], t["round"]): t["samples"][0]["content"] for t in greedy}
    equal = of = 0
    for (name, cell, turn), text in texts.items():
        if name != arm or (arm == BASELINE and turn == first):
            continue
        other = texts.get((BASELINE, cell, first if arm == BASELINE else turn))
        if other is not None:
            of += 1
            equal += text == other
    return {"arm": arm, "equal": equal, "of": of}


def _flags(lines: list[dict[str, Any]], manifest: Mapping[str, Any]) -> dict[str, int]:
    good = [line for line in lines if line["failed"] is None]
    cells = manifest["plan"]["cells"]
    wanted = {name: cell["requests"][0]["max_tokens"] for name, cell in cells.items()}
    return {
        "samples": len(good),
        "throttled": sum(bool(line["throttles"]) for line in good),
        "clocks_disagree": sum(line["samples"][0]["clocks_disagree"] for line in good),
        "ended_early": sum(
            line["samples"][0]["predicted_n"] < wanted[line["cell"]] for line in good
        ),
        "failed_attempts": len(lines) - len(good),
    }


def _known_answer(
    manifest: Mapping[str, Any], greedy: list[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """For the known-answer pair: expected counts beside measured ones. None for other models."""
    if manifest["settings"]["MODEL"] != pair.TARGET_NAME:
        return None
    chain = pair.make_chain()
    rows = []
    for arm, changes in manifest["plan"]["arms"].items():
        own = [trial for trial in greedy if trial["arm"] == arm]
        if changes.get("SPEC_TYPE") != "draft-mtp" or not own:
            continue
        length = int(changes["SPEC_DRAFT_N_MAX"])
        expected = pair.Drafting(0, 0, 0, (0,) * length)
        for trial in own:
            (asked,) = manifest["plan"]["cells"][trial["cell"]]["requests"]
            expected += pair.expect(chain, asked["characters"], asked["max_tokens"], length)
        wanted = {
            "accepted": expected.accepted,
            "drafted": expected.drafted,
            "share": summary.rounded(expected.accepted / expected.drafted),
            "drafts": expected.drafts,
            "accepted_per_pos": list(expected.accepted_per_pos),
        }
        rows.append({"arm": arm, "expected": wanted, "equal": wanted == summary.kept(own)})
    return rows


def _largest(values: list[float | None]) -> float | None:
    return summary.rounded(max((value for value in values if value is not None), default=None))
