"""What is made of the replies of an identity run."""

from collections.abc import Mapping
from pathlib import Path

from common.kinds.identity.plan import CONTROL, GREEDY
from common.kinds.identity.schema import Arm, Difference, Parting, Summary
from common.known.chain import chain_of
from common.measure import rows as measure_rows
from common.measure.journal import Manifest, Piece, Sample
from common.measure.log import Log
from common.measure.summary import EqualReplies

NEAR_TIE = 0.1  # nats: two tokens whose probabilities differ by less than about a tenth


def summarise(folder: Path) -> Summary:
    """Every figure of an identity report, from the run directory alone."""
    log = Log(folder)
    replies = {(t["round"], t["arm"], t["cell"]): t["samples"][0] for t in log.trials}
    baseline = {
        cell: r
        for (turn, arm, cell), r in replies.items()
        if (turn, arm) == (GREEDY, measure_rows.BASELINE)
    }
    blocks = [(CONTROL, measure_rows.BASELINE)]
    blocks += [(GREEDY, arm) for arm in log.arms if arm != measure_rows.BASELINE]
    rows: list[Arm] = []
    differences: list[Difference] = []
    for turn, arm in blocks:
        own = {cell: r for (t, a, cell), r in replies.items() if (t, a) == (turn, arm)}
        shared = [cell for cell in own if cell in baseline]
        differing: list[Difference] = [
            {"arm": arm, "control": turn == CONTROL, "cell": cell, **difference}
            for cell in shared
            if (difference := compare(baseline[cell], own[cell]))
        ]
        trials = [t for t in log.trials if (t["round"], t["arm"]) == (turn, arm)]
        rows.append(
            {
                "arm": arm,
                "control": turn == CONTROL,
                "equal": len(shared) - len(differing),
                "of": len(shared),
                "near_ties": sum(one["near_tie"] is True for one in differing),
                "kept": measure_rows.kept(trials),
            }
        )
        differences += differing
    return {
        **log.head(),
        "near_tie_nats": NEAR_TIE,
        "arms": rows,
        "differences": differences,
        "cells": [
            {
                "cell": cell,
                "prompt_tokens": measure_rows.given(reply["prompt_n"]),
                "tokens": measure_rows.given(reply["predicted_n"]),
            }
            for cell, reply in baseline.items()
        ],
        "failed_attempts": len(log.lines) - len(log.trials),
        "known_answer": _known_answer(log.manifest, replies),
        "time": log.time(),
    }


def compare(baseline: Sample, other: Sample) -> Parting | None:
    """Where two replies part; None if they are the same.

    `token` counts from 0. `gap` is by how much the baseline held its own token more likely than
    the other's, in nats; None where it is not known, a lower bound where the other's token is not
    among the candidates kept. A reply that ended there has None for its text.
    """
    said = [
        (some["content"], some["reasoning"], some["finish_reason"]) for some in (baseline, other)
    ]
    if said[0] == said[1]:
        return None
    own, others = (measure_rows.given(reply["pieces"]) for reply in (baseline, other))
    mine, theirs = ([piece["text"] for piece in pieces] for pieces in (own, others))
    token = 0
    while token < min(len(mine), len(theirs)) and mine[token] == theirs[token]:
        token += 1
    text = mine[token] if token < len(mine) else None
    other_text = theirs[token] if token < len(theirs) else None
    gap, bound = None, False
    if text is not None:
        gap, bound = _gap(own[token], other_text)
    return {
        "token": token,
        "after": "".join(mine[:token])[-40:],
        "text": text,
        "other_text": other_text,
        "gap": measure_rows.significant(gap),
        "gap_is_lower_bound": bound,
        "near_tie": None if gap is None else not bound and gap < NEAR_TIE,
    }


def _gap(piece: Piece, other_text: str | None) -> tuple[float | None, bool]:
    """The gap to the candidate of this text, in nats, and whether it is only a lower bound.

    The end of a reply has no text, like every control token; the likeliest of these is taken.
    """
    if not piece["top"]:
        return None, False
    chances = [chance for _id, text, chance in piece["top"] if text == (other_text or "")]
    if chances:
        return piece["logprob"] - max(chances), False
    return piece["logprob"] - min(chance for _id, _text, chance in piece["top"]), True


def _known_answer(
    manifest: Manifest, replies: Mapping[tuple[str, str, str], Sample]
) -> EqualReplies | None:
    """For the known-answer pair: replies that are what its chain says. None for other models."""
    chain = chain_of(manifest["settings"]["MODEL"])
    if chain is None:
        return None
    equal = 0
    for (_turn, _arm, cell), reply in replies.items():
        (asked,) = manifest["plan"]["cells"][cell]["requests"]
        text = chain.text(chain.reply(asked["bytes"], asked["max_tokens"]))
        equal += reply["content"] == text
    return {"equal": equal, "of": len(replies)}
