"""Faults on the way to the real engine: a proxy delays, stalls, cuts, or kills the server."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.engines.llamacpp.build import Engine
from common.measure import loop, run
from common.measure.arms import GREEDY
from common.measure.plan import Arm, Cell, Plan, Round
from common.rig import ROOT, Rig
from common.serving import client

pytestmark = pytest.mark.engine

TOKENS = 48
AT_ONCE = 2
CELLS = ("first", "second", "third")
# The server's own check is its first chat request; then two requests a cell.
IN_SECOND = 4


@pytest.fixture
def proxied(tmp_path: Path, real_engine: Engine) -> Callable[[str], Engine]:
    """Call with a fault to get the real engine behind the proxy."""

    def make(fault: str) -> Engine:
        program = tmp_path / "llama-server"
        settings = f'PROXY_SERVER="{real_engine.server}" PROXY_ONCE="{tmp_path / "spoilt"}"'
        proxy = ROOT / "tests" / "helpers" / "proxy_llama_server.py"
        program.write_text(
            f"#!/bin/sh\nexport {settings} PROXY_FAULT={fault}\n"
            f'exec "{sys.executable}" "{proxy}" "$@"\n'
        )
        program.chmod(0o755)
        return Engine(program, {})

    return make


def measured(rig: Rig, engine: Engine, out: Path, limit_s: float = 60) -> list[dict[str, Any]]:
    """One arm, three cells of two requests each; the journal's lines."""
    rig = rig.variant({"PARALLEL": str(AT_ONCE)})
    cells = [
        Cell(
            name,
            [{**client.chat(f"{name} {i}", TOKENS), "ignore_eos": True} for i in range(AT_ONCE)],
        )
        for name in CELLS
    ]
    plan = Plan(
        "sweep",
        [Arm("drafter", {})],
        cells,
        [Round("ascending-1", "greedy", GREEDY)],
        request_limit_s=limit_s,
        mark_failures=True,
    )
    with run.create(rig, "sweep", {"plan": plan.to_json()}, out) as current:
        loop.measure(plan, rig, engine, current, lambda *_: None)
    lines = run.read_lines(out, run.JOURNAL)
    assert [line["cell"] for line in lines] == list(CELLS)
    return lines


@pytest.mark.parametrize(
    ("fault", "word"),
    [("stall", "no end after 5 s"), ("cut", "connection lost"), ("kill", "has ended")],
)
def test_a_spoilt_request_marks_its_cell_alone(
    tiny: Rig,
    proxied: Callable[[str], Engine],
    tmp_path: Path,
    fault: str,
    word: str,
) -> None:
    lines = measured(tiny, proxied(f"{fault}:{IN_SECOND}"), tmp_path / "run", 5)
    assert [line["failed"] is None for line in lines] == [True, False, True]
    assert word in lines[1]["failed"]
    for line in (lines[0], lines[2]):
        assert [sample["predicted_n"] for sample in line["samples"]] == [TOKENS] * AT_ONCE
        assert all(sample["draft_n"] > 0 for sample in line["samples"])
    starts = run.read_lines(tmp_path / "run", run.STARTS)
    assert len(starts) == (2 if fault == "kill" else 1)


def test_a_delayed_request_is_late_but_no_failure(
    tiny: Rig, proxied: Callable[[str], Engine], tmp_path: Path
) -> None:
    lines = measured(tiny, proxied(f"delay:{IN_SECOND}"), tmp_path / "run")
    assert all(line["failed"] is None for line in lines)
    late = [[sample["ttft_ms"] > 500 for sample in line["samples"]] for line in lines]
    assert sum(map(sum, late)) == 1
    assert sum(late[1]) == 1
