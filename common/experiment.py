"""Plan, Arm, Cell, Round: what is measured, and the one loop that measures it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common import client, counters, gpu
from common.engine import Engine
from common.errors import RigError
from common.rig import Rig
from common.run import JOURNAL, STARTS, TELEMETRY, Run, read_lines
from common.server import Server

REQUEST_LIMIT_S = 1800.0
DEATH_S = 0.2  # a server that dies closes its connection a moment before it is gone


@dataclass(frozen=True)
class Arm:
    """One server configuration: the rig with some settings changed."""

    name: str
    changes: Mapping[str, str]


@dataclass(frozen=True)
class Cell:
    """One thing asked of every arm: requests that are sent at once."""

    name: str
    bodies: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Round:
    """One pass over the arms. `sampling` is added to every request."""

    name: str
    kind: str
    """greedy, sampled or drift"""
    sampling: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """A whole measurement. The drift round repeats the first arm of the first round."""

    what: str
    arms: Sequence[Arm]
    cells: Sequence[Cell]
    rounds: Sequence[Round]
    quick: bool = False
    request_limit_s: float = REQUEST_LIMIT_S

    def blocks(self) -> list[tuple[Round, Arm]]:
        """Rounds and arms in measuring order. The order of arms rotates from round to round."""
        order = []
        for index, turn in enumerate(self.rounds):
            if turn.kind == "drift":
                order.append((turn, self.arms[0]))
                continue
            first = index % len(self.arms)
            order += [(turn, arm) for arm in [*self.arms[first:], *self.arms[:first]]]
        return order

    def to_json(self) -> dict[str, Any]:
        return {
            "arms": {arm.name: dict(arm.changes) for arm in self.arms},
            "cells": {cell.name: list(cell.bodies) for cell in self.cells},
            "order": [[turn.name, arm.name] for turn, arm in self.blocks()],
            "rounds": {
                turn.name: {"kind": turn.kind, "sampling": dict(turn.sampling)}
                for turn in self.rounds
            },
            "quick": self.quick,
        }


def measure(
    plan: Plan, rig: Rig, engine: Engine, run: Run, show: Callable[[int, str], None]
) -> None:
    """Measure every trial that the journal does not hold yet.

    `show` gets the number of trials just finished and a word on what is going on. Raises RigError
    at the first failed request or server; everything before it is in the journal.
    """
    card = gpu.find(rig)
    done = {
        (line["round"], line["arm"], line["cell"])
        for line in read_lines(run.folder, JOURNAL)
        if not line["failed"]
    }
    starts = read_lines(run.folder, STARTS)
    first_temperature = starts[0]["temperature_c"] if starts else None
    with gpu.Telemetry(card, run.folder / TELEMETRY) as telemetry:
        for turn, arm in plan.blocks():
            todo = [cell for cell in plan.cells if (turn.name, arm.name, cell.name) not in done]
            show(len(plan.cells) - len(todo), f"{turn.name}, {arm.name}")
            if not todo:
                continue
            temperature, cooled_s = gpu.cool_down(card, first_temperature)
            first_temperature = first_temperature or temperature
            log = run.logs / f"{turn.name}-{arm.name}.log".replace(",", "+")
            with Server(rig.variant(arm.changes), engine, log, measuring=True) as server:
                run.append(STARTS, _start(turn, arm, server, temperature, cooled_s, card))
                for cell in todo:
                    trial = _trial_or_death(plan, turn, arm, cell, server, telemetry)
                    run.append(JOURNAL, trial)
                    _stop_if_failed(trial, server)
                    show(1, f"{turn.name}, {arm.name}, {cell.name}")


def _start(
    turn: Round,
    arm: Arm,
    server: Server,
    temperature: int | None,
    cooled_s: float,
    card: gpu.Card | None,
) -> dict[str, Any]:
    return {
        "round": turn.name,
        "arm": arm.name,
        "ready_s": server.ready_s,
        "checked_s": server.check.wall_ms / 1000 if server.check and server.check.wall_ms else None,
        "cooled_s": cooled_s,
        "temperature_c": temperature,
        "command": server.command,
        "memory_ready_mib": _memory(server, card),
    }


def _memory(server: Server, card: gpu.Card | None) -> dict[str, float | None]:
    """Memory in MiB: of the process, and used on the whole card."""
    process = server.memory_mib() or {}
    return {
        "process": process.get("now"),
        "process_peak": process.get("peak"),
        "card": card.sample().memory_mib if card else None,
    }


def _trial_or_death(
    plan: Plan, turn: Round, arm: Arm, cell: Cell, server: Server, telemetry: gpu.Telemetry
) -> dict[str, Any]:
    try:
        return _trial(plan, turn, arm, cell, server, telemetry)
    except RigError:
        if server.alive:
            raise
        what = f"llama-server ended before {cell.name} of {arm.name}, {turn.name} was measured"
        raise server.death(f"{what}; earlier trials are kept, continue with RESUME=1") from None


def _trial(
    plan: Plan, turn: Round, arm: Arm, cell: Cell, server: Server, telemetry: gpu.Telemetry
) -> dict[str, Any]:
    """Send one cell's requests and return the journal line."""
    bodies = [{**body, **turn.sampling} for body in cell.bodies]
    url = server.rig.url
    before = counters.read(url)
    start = time.time()
    replies = client.ask(url, bodies, plan.request_limit_s)
    end = time.time()
    failed = [reply.error for reply in replies if reply.error]
    during = telemetry.during(start, end)
    return {
        "round": turn.name,
        "arm": arm.name,
        "cell": cell.name,
        "start": round(start, 3),
        "end": round(end, 3),
        "failed": failed[0] if failed else None,
        "counters": None if failed else (counters.read(url) - before).to_json(),
        "memory_mib": _memory(server, telemetry.card),
        "throttles": sorted({reason for sample in during for reason in sample.throttles}),
        "samples": [reply.to_json() for reply in replies],
    }


def _stop_if_failed(trial: dict[str, Any], server: Server) -> None:
    if trial["failed"] is None:
        return
    what = (
        f"the request {trial['cell']} of {trial['arm']}, {trial['round']} failed: "
        f"{trial['failed']}; earlier trials are kept, continue with RESUME=1"
    )
    time.sleep(DEATH_S)
    raise RigError(what) if server.alive else server.death(f"{what}. llama-server has ended")
