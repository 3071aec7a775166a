"""Plan, Arm, Cell, Round: what is measured."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from common.engines import Engine
from common.measure import journal
from common.measure.journal import Trial

REQUEST_LIMIT_S = 1800.0


@dataclass(frozen=True)
class Arm:
    """One server configuration: the rig with some settings changed."""

    name: str
    changes: Mapping[str, str]
    engine: Engine | None = None
    """the llama-server it runs on; None: the rig's own"""


@dataclass(frozen=True)
class Cell:
    """One thing asked of every arm: requests that are sent at once."""

    name: str
    bodies: Sequence[Mapping[str, Any]]
    about: Mapping[str, Any] = field(default_factory=dict)
    """what the summary needs to know of it, such as its depth"""
    infeasible: str | None = None
    """why it cannot be asked at all, such as a depth beyond the context"""
    users: int | None = None
    """a closed loop: so many users, who share the requests, each sending the next when its reply
    has ended; None: all at once"""
    loop_s: float = math.inf
    """after which a closed loop sends no more"""

    def to_json(self) -> journal.Cell:
        """The cell for the manifest: its requests by length and digest, not by text."""
        requests: list[journal.Request] = []
        for body in self.bodies:
            prompt = str(body["messages"][-1]["content"])
            data = prompt.encode()
            requests.append(
                {
                    "characters": len(prompt),
                    "bytes": len(data),
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "max_tokens": body["max_tokens"],
                }
            )
        about = cast(journal.Cell, self.about)
        return {**about, "infeasible": self.infeasible, "requests": requests}


@dataclass(frozen=True)
class Round:
    """One pass over the arms. `sampling` is added to every request."""

    name: str
    kind: str
    """greedy, sampled or drift"""
    sampling: Mapping[str, Any]
    descending: bool = False
    """whether the cells are asked in reverse"""
    only: frozenset[str] | None = None
    """the names of the cells asked in this round; None: all"""


@dataclass(frozen=True)
class Plan:
    """A whole measurement. The drift round repeats the first arm of the first round."""

    what: str
    arms: Sequence[Arm]
    cells: Sequence[Cell]
    rounds: Sequence[Round]
    quick: bool = False
    request_limit_s: float = REQUEST_LIMIT_S
    mark_failures: bool = False
    """go on after a failed trial and mark it, instead of stopping"""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """what else it was made from, such as a document's digest; a resumed run must match"""
    attached: Mapping[str, str] = field(default_factory=dict)
    """files (name to text) put beside the manifest: what the summary needs and it cannot hold"""
    deaths_allowed: int | None = None
    """stop all the same when so many servers have died; None: never, if failures are marked"""
    prompts: Path | None = None
    """the file of what is its own of what it asks; its digest goes into the manifest, beside that
    of every request"""
    follow: Callable[[Sequence[Trial]], list[tuple[Round, Arm]]] | None = None
    """for a plan that decides as it goes: the journal's lines -> the next rounds and arms in
    measuring order, none at the end. An arm whose server does not come up is then marked as failed
    in the journal, for the plan to drop"""
    at_most: int | None = None
    """how many trials it can come to, where that is not known beforehand"""

    def asked(self, turn: Round) -> list[Cell]:
        """The cells of one round, in the order they are asked."""
        cells = [
            cell
            for cell in self.cells
            if cell.infeasible is None and (turn.only is None or cell.name in turn.only)
        ]
        return cells[::-1] if turn.descending else cells

    def course(self, journal: Callable[[], Sequence[Trial]]) -> Iterator[tuple[Round, Arm]]:
        """Rounds and arms in measuring order; a plan that decides as it goes reads the journal."""
        blocks = self.follow(journal()) if self.follow else self.blocks()
        while blocks:
            yield from blocks
            before, blocks = blocks, self.follow(journal()) if self.follow else []
            assert blocks != before, "what was just measured is asked for again"

    def blocks(self) -> list[tuple[Round, Arm]]:
        """Rounds and arms in measuring order, as far as they are known beforehand.

        Every second round has the order of the one before it reversed, so that over the two each
        arm comes as often before as after each other, and a steady trend of the machine falls on
        all alike. Each such pair begins one arm further on.
        """
        if self.follow:
            return self.follow([])
        order = []
        for index, turn in enumerate(self.rounds):
            if turn.kind == "drift":
                order.append((turn, self.arms[0]))
                continue
            first = index // 2 % len(self.arms)
            arms = [*self.arms[first:], *self.arms[:first]]
            order += [(turn, arm) for arm in (arms[::-1] if index % 2 else arms)]
        return order

    def to_json(self) -> journal.Plan:
        attached = {
            name: hashlib.sha256(text.encode()).hexdigest() for name, text in self.attached.items()
        }
        return {
            "arms": {arm.name: dict(arm.changes) for arm in self.arms},
            "cells": {cell.name: cell.to_json() for cell in self.cells},
            "order": [[turn.name, arm.name] for turn, arm in self.blocks()],
            "rounds": {
                turn.name: {"kind": turn.kind, "sampling": dict(turn.sampling)}
                for turn in self.rounds
            },
            "quick": self.quick,
            "inputs": {**self.inputs, **attached},
        }


def rounds_of(kind: str, count: int, sampling: Mapping[str, Any]) -> list[Round]:
    """Rounds of one kind, to be even in number: every second one asks its cells in reverse. Where
    replies are drawn at random, each round has a seed of its own."""
    rounds = []
    for index in range(count):
        name, back = f"{kind}-{index + 1}", bool(index % 2)
        rounds.append(Round(name, kind, seeded(sampling, index), descending=back))
    return rounds


def seeded(sampling: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The sampling of the round of this index: with a seed of its own where replies are drawn at
    random."""
    return {**sampling, "seed": index + 1} if sampling.get("temperature") else dict(sampling)
