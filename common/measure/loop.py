"""Loop: the one loop that measures any plan."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import cast

from common.engines import Engine
from common.errors import RigError, StartError
from common.host import card
from common.measure.journal import Counters, Memory, Sample, Start, Trial
from common.measure.plan import Arm, Cell, Plan, Round
from common.measure.rows import given, significant
from common.measure.run import JOURNAL, STARTS, TELEMETRY, Run, read_lines
from common.rig import Rig
from common.serving import client
from common.serving.process import Server

DEATH_S = 0.2  # a server that dies closes its connection a moment before it is gone


def measure(
    plan: Plan, rig: Rig, engine: Engine, run: Run, show: Callable[[int, str], None]
) -> None:
    """Measure every trial that the journal does not hold yet, on `engine` where an arm has none.

    `show` gets the number of trials just finished and a word on what is going on. At the first
    failed request or server raises RigError, with everything before it in the journal; or, if the
    plan marks failures, notes the reason, starts the server again if need be, and goes on.
    """
    present = card.find(rig)
    done = {
        (line["round"], line["arm"], line["cell"])
        for line in read_lines(run.folder, JOURNAL)
        if plan.mark_failures or not line["failed"]
    }
    deaths = 0
    starts = read_lines(run.folder, STARTS)
    first_temperature = starts[0]["temperature_c"] if starts else None
    energy = run.manifest.get("energy")
    with card.Telemetry(present, run.folder / TELEMETRY, energy) as telemetry:
        for turn, arm in plan.course(lambda: read_lines(run.folder, JOURNAL)):
            cells = plan.asked(turn)
            todo = [cell for cell in cells if (turn.name, arm.name, cell.name) not in done]
            show(len(cells) - len(todo), f"{turn.name}, {arm.name}")
            while todo:
                temperature, cooled_s = card.cool_down(present, first_temperature)
                first_temperature = first_temperature or temperature
                log = run.logs / f"{turn.name}-{arm.name}.log".replace(" ", "_")
                own = arm.engine or engine
                try:
                    with Server(rig.variant(arm.changes), own, log, measuring=True) as server:
                        run.append(
                            STARTS, _start(turn, arm, server, temperature, cooled_s, present)
                        )
                        todo = _measure_cells(plan, turn, arm, todo, server, telemetry, run, show)
                        deaths += not server.alive
                except StartError as error:
                    if plan.follow is None:
                        raise
                    for cell in todo:
                        run.append(JOURNAL, {**_blank(turn, arm, cell), "failed": str(error)})
                        show(1, f"{turn.name}, {arm.name} does not start")
                    todo = []
                if deaths == plan.deaths_allowed:
                    raise RigError(
                        f"llama-server has ended {deaths} times, last in {turn.name} of "
                        f"{arm.name}; see {log}. Replies are kept, continue with RESUME=1"
                    )


def _measure_cells(
    plan: Plan,
    turn: Round,
    arm: Arm,
    todo: list[Cell],
    server: Server,
    telemetry: card.Telemetry,
    run: Run,
    show: Callable[[int, str], None],
) -> list[Cell]:
    """Measure cells on one server; returns those that are left if it died and was marked."""
    for index, cell in enumerate(todo):
        trial = _trial_or_death(plan, turn, arm, cell, server, telemetry)
        telemetry.check()  # else nobody knows whether the card was throttled meanwhile
        run.append(JOURNAL, trial)
        show(1, f"{turn.name}, {arm.name}, {cell.name}")
        if trial["failed"] is None:
            continue
        if not plan.mark_failures:
            raise RigError(f"{trial['failed']}; earlier trials are kept, continue with RESUME=1")
        if not server.alive:
            return todo[index + 1 :]
    return []


def _start(
    turn: Round,
    arm: Arm,
    server: Server,
    temperature: int | None,
    cooled_s: float,
    present: card.Card | None,
) -> Start:
    return {
        "round": turn.name,
        "arm": arm.name,
        "ready_s": given(server.ready_s),
        "checked_s": server.check.wall_ms / 1000 if server.check and server.check.wall_ms else None,
        "cooled_s": cooled_s,
        "temperature_c": temperature,
        "command": server.command,
        "memory_ready_mib": _memory(server, present),
    }


def _memory(server: Server, present: card.Card | None) -> Memory:
    """Memory in MiB: of the process, and used on the whole card."""
    process = server.memory_mib() or {}
    return {
        "process": process.get("now"),
        "process_peak": process.get("peak"),
        "card": present.sample().memory_mib if present else None,
    }


def _trial_or_death(
    plan: Plan, turn: Round, arm: Arm, cell: Cell, server: Server, telemetry: card.Telemetry
) -> Trial:
    """The trial; if the server ended meanwhile, its `failed` holds the log's last lines."""
    try:
        trial = _trial(plan, turn, arm, cell, server, telemetry)
        failed = trial["failed"]
    except card.LostError:
        raise
    except RigError as error:
        failed = str(error)
        trial = _blank(turn, arm, cell)
    if failed is None and server.alive:
        server.check_ours()  # else nobody knows who replied, and nothing of it is kept
        return trial
    failed = failed or "nobody knows who replied"
    what = f"{cell.name} of {arm.name}, {turn.name} failed: {failed}"
    time.sleep(DEATH_S)
    if not server.alive:
        return {**trial, "failed": str(server.death(f"{what}; llama-server has ended"))}
    return {**trial, "failed": what}


def _blank(turn: Round, arm: Arm, cell: Cell) -> Trial:
    """A trial that gave nothing."""
    now = round(time.time(), 3)
    blank: Trial = {
        "round": turn.name,
        "arm": arm.name,
        "cell": cell.name,
        "start": now,
        "end": now,
        "failed": None,
        "counters": None,
        "energy_j": None,
        "memory_mib": None,
        "throttles": [],
        "samples": [],
    }
    if cell.users is not None:
        blank["users"] = cell.users
    return blank


def _trial(
    plan: Plan, turn: Round, arm: Arm, cell: Cell, server: Server, telemetry: card.Telemetry
) -> Trial:
    """Send one cell's requests and return the journal line.

    Replies that came are kept even if what the server counted meanwhile is not known. Such a trial
    has failed all the same: nobody can say at which positions its drafts were kept.
    """
    bodies = [{**body, **turn.sampling} for body in cell.bodies]
    url = server.rig.url
    before = server.counters()
    joules, start = telemetry.joules(), time.time()
    replies = client.ask(
        url,
        bodies,
        plan.request_limit_s,
        closely=server.rig.stream_gaps == "1",
        users=cell.users,
        for_s=cell.loop_s,
    )
    end = time.time()
    drawn = telemetry.drawn(joules, start, end)
    reasons = [reply.error for reply in replies if reply.error]
    counted = None
    if not reasons:
        try:
            counted = cast(Counters, (server.counters() - before).to_json())
        except RigError as error:
            reasons.append(f"replies came, but {error}")
    return {
        **_blank(turn, arm, cell),
        "start": round(start, 3),
        "end": round(end, 3),
        "failed": joined(reasons),
        "counters": counted,
        "energy_j": significant(drawn),
        "memory_mib": _memory(server, telemetry.card),
        "throttles": telemetry.throttles(start, end),
        "samples": [cast(Sample, reply.to_json()) for reply in replies],
    }


def joined(reasons: Sequence[str]) -> str | None:
    """Every reason once, with how often it was given; None without any."""
    counts = Counter(reasons)
    said = [f"{why} ({count} times)" if count > 1 else why for why, count in counts.items()]
    return "; ".join(said) or None
