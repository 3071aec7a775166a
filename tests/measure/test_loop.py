"""Trials: what a journal line keeps of replies that came, and of several that did not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.engines.llamacpp.build import Engine
from common.engines.llamacpp.counters import Counters
from common.errors import RigError
from common.known import chain
from common.measure import loop, resume, run
from common.measure.arms import GREEDY
from common.measure.log import Log
from common.measure.plan import Arm, Cell, Plan, Round
from common.rig import Rig
from common.serving import client
from common.serving.process import Server
from tests.helpers.runs import MADE

Fake = Callable[..., Engine]
Replies = list[client.Reply]
CELLS = ("first", "second", "third")
AT_ONCE = 3
TOKENS = 64
CHAIN = chain.make_chain()
# The server's own check is its first chat request.
AFTER_FIRST = 1 + AT_ONCE


def plan_of(mark_failures: bool) -> Plan:
    cells = [Cell(name, [client.chat(f"{name} {i}", 8) for i in range(AT_ONCE)]) for name in CELLS]
    rounds = [Round("ascending-1", "greedy", GREEDY)]
    return Plan("sweep", [Arm("n=1", {})], cells, rounds, mark_failures=mark_failures)


def measured(rig: Rig, engine: Engine, out: Path, plan: Plan) -> list[dict[str, Any]]:
    rig = rig.variant({"PARALLEL": str(AT_ONCE), "SPEC_DRAFT_N_MAX": "1"})
    manifest = {**MADE, "plan": plan.to_json(), "settings": rig.settings()}
    if out.exists():
        begun = resume.resume(rig, "sweep", manifest, out, print)
    else:
        begun = run.create(rig, "sweep", manifest, out)
    with begun as current:
        loop.measure(plan, rig, engine, current, lambda *_: None)
    return run.read_lines(out, run.JOURNAL)


def test_replies_are_kept_where_the_counters_fail(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    engine = fake(fault=f"no-metrics:{AFTER_FIRST}", once=str(tmp_path / "done"))
    first, *rest = measured(tiny, engine, tmp_path / "run", plan_of(True))
    assert "replies came, but" in first["failed"]
    assert "/metrics did not answer" in first["failed"]
    assert first["counters"] is None
    assert [sample["predicted_n"] for sample in first["samples"]] == [8] * AT_ONCE
    assert [line["failed"] for line in rest] == [None, None]
    assert len(Log(tmp_path / "run").trials) == 2


def test_such_a_trial_is_measured_again_where_failures_stop(
    tiny: Rig, fake: Fake, tmp_path: Path
) -> None:
    engine = fake(fault=f"no-metrics:{AFTER_FIRST}", once=str(tmp_path / "done"))
    with pytest.raises(RigError, match=r"replies came.*RESUME=1"):
        measured(tiny, engine, tmp_path / "run", plan_of(False))
    lines = measured(tiny, engine, tmp_path / "run", plan_of(False))
    assert [line["cell"] for line in lines] == ["first", *CELLS]
    assert lines[0]["samples"]
    assert [line["failed"] is None for line in lines] == [False, True, True, True]


def test_every_reason_is_kept_once_and_counted(
    tiny: Rig, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = client.ask

    def lossy(url: str, bodies: list[dict[str, Any]], *more: Any, **named: Any) -> Replies:
        replies = ask(url, bodies, *more, **named)
        if "second" in bodies[0]["messages"][0]["content"]:
            for reply, error in zip(replies, ("late", "lost", "late"), strict=True):
                reply.error = error
        return replies

    monkeypatch.setattr(client, "ask", lossy)
    lines = measured(tiny, fake(), tmp_path / "run", plan_of(True))
    assert [line["failed"] is None for line in lines] == [True, False, True]
    (failed,) = Log(tmp_path / "run").failed()
    assert failed["reason"].endswith("failed: late (2 times); lost")
    assert [sample["error"] for sample in lines[1]["samples"]] == ["late", "lost", "late"]


@pytest.mark.engine
def test_the_known_answer_counts_bytes_as_the_engine_does(
    tiny: Rig, real_engine: Engine, tmp_path: Path
) -> None:
    prompts = ("größer als alles 😀", "漢字", "é" * 13)
    sizes = [(len(prompt), len(prompt.encode())) for prompt in prompts]
    known = [[chain.expect(CHAIN, size, TOKENS, 1) for size in both] for both in sizes]
    assert all(by_characters != by_bytes for by_characters, by_bytes in known)
    cells = [Cell(prompt, [client.chat(prompt, TOKENS)]) for prompt in prompts]
    plan = Plan("sweep", [Arm("n=1", {})], cells, [Round("ascending-1", "greedy", GREEDY)])
    measured(tiny, real_engine, tmp_path / "run", plan)
    log = Log(tmp_path / "run")
    assert len(log.trials) == len(prompts)
    assert log.cells_wrong(log.trials) == []
    (row,) = log.known_answer(log.trials) or []
    assert row["equal"], row


@pytest.mark.parametrize("mark_failures", [False, True])
def test_nothing_of_a_strangers_server_is_kept(
    tiny: Rig, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark_failures: bool
) -> None:
    """One that took the port meanwhile ends the run, also where failures are only noted."""
    looks = []

    def taken(server: Server) -> None:
        looks.append(server)
        if len(looks) > 2:  # at the start, after the first trial, after the second
            raise RigError("port 1 is answered by another program too")

    monkeypatch.setattr(Server, "check_ours", taken)
    with pytest.raises(RigError, match="answered by another program"):
        measured(tiny, fake(), tmp_path / "run", plan_of(mark_failures))
    assert [line["cell"] for line in run.read_lines(tmp_path / "run", run.JOURNAL)] == ["first"]
    assert not looks[-1].alive


def test_a_reply_of_nobody_knows_whom_is_no_reply(
    tiny: Rig, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our server is gone when the trial is over, though everything was answered."""
    counters = Server.counters

    def last_breath(server: Server) -> Counters:
        found = counters(server)
        assert server.process is not None
        if "second" in asked:
            asked.clear()
            server.process.kill()
            server.process.wait()
        return found

    asked: list[str] = []
    ask = client.ask

    def noted(url: str, bodies: list[dict[str, Any]], *more: Any, **named: Any) -> Replies:
        asked.extend(word for word in CELLS if word in bodies[0]["messages"][0]["content"])
        return ask(url, bodies, *more, **named)

    monkeypatch.setattr(client, "ask", noted)
    monkeypatch.setattr(Server, "counters", last_breath)
    lines = measured(tiny, fake(), tmp_path / "run", plan_of(True))
    assert [line["failed"] is None for line in lines] == [True, False, True]
    assert "llama-server has ended" in lines[1]["failed"]
