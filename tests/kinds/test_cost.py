"""make cost: the pair it makes, its arms, its figures by hand, and the real engine."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common import places, report
from common.engines.llamacpp import serve
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.kinds.cost import plan as cost
from common.kinds.cost import report as cost_report
from common.kinds.cost import summary as cost_summary
from common.kinds.cost.summary import acceptance_for
from common.measure import page
from common.rig import Rig
from common.weights import random_pair
from common.weights.gguf_file import open_gguf
from common.weights.shapes import SHAPES
from tests.helpers.run_script import Done, measure, measure_as_process
from tests.weights.test_random_pair import SMALL

Fake = Callable[..., Engine]


def measured(
    rig: Rig, out: Path, how: Callable[..., Done] = measure, /, **settings: str
) -> dict[str, Any]:
    done = how("cost", rig, str(out), **settings)
    assert done.code == 0, done.err
    return dict(json.loads((out / report.SUMMARY).read_text()))


def test_arms_and_flags(tiny: Rig) -> None:
    rig = cost.base(tiny.variant({"COST_ACCEPT": "0.5,0.7", "SPEC_TYPE": ""}))
    plan = cost.plan(rig)
    assert [arm.name for arm in plan.arms] == [
        "none",
        "n=1 at 0.5",
        "n=2 at 0.5",
        "n=3 at 0.5",
        "n=4 at 0.5",
        "n=1 at 0.7",
        "n=2 at 0.7",
        "n=3 at 0.7",
        "n=4 at 0.7",
    ]
    line = serve.command(rig.variant(plan.arms[7].changes), "x")
    assert line[line.index("--spec-synth-rates") + 1] == "0.7,0.49,0.343"
    assert line[line.index("--spec-draft-n-max") + 1] == "3"
    assert "--spec-synth-rates" not in serve.command(rig.variant(plan.arms[0].changes), "x")
    bodies = [cell.bodies[0] for cell in plan.cells]
    assert len({body["seed"] for body in bodies}) == len(bodies) == 4
    assert all("seed" not in turn.sampling for turn in plan.rounds)
    greedy = [turn for turn in plan.rounds if turn.kind == "greedy"]
    assert [turn.descending for turn in greedy] == [False, True] * 2
    assert [turn.kind for turn in plan.rounds[len(greedy) :]] == ["drift"]


@pytest.mark.parametrize("value", ["1.5", "0", "a", "0.5,,0.6", "nan"])
@pytest.mark.parametrize("key", ["COST_ACCEPT", "SPEC_SYNTH_RATES"])
def test_bad_shares(tiny: Rig, key: str, value: str) -> None:
    with pytest.raises(RigError, match=f"{key}={value}: expected shares between 0 and 1"):
        tiny.variant({key: value})


def test_acceptance_that_is_set_is_said_on_any_report() -> None:
    summary: Any = {"quick": False, "complete": True, "repetition": None}
    manifest: Any = {"settings": {"MODEL": "m.gguf", "SPEC_SYNTH_RATES": "0.5"}}
    (said,) = page.warnings(summary, manifest | {"what": "speed"})
    assert "Acceptance was set" in said
    assert page.warnings(summary, manifest | {"what": "cost"}) == []


def test_needs_a_shape(tiny: Rig) -> None:
    with pytest.raises(RigError, match="set COST_SHAPE"):
        cost.base(tiny.variant({"COST_SHAPE": ""}))


@pytest.mark.parametrize("length", [1, 2, 4])
def test_acceptance_for_a_cost(length: int) -> None:
    for p in (0.1, 0.5, 0.9):
        dear = sum(p**position for position in range(length + 1))
        assert acceptance_for(dear, length) == pytest.approx(p)
    assert acceptance_for(0.9, length) == 0
    assert acceptance_for(length + 1.1, length) is None


def test_the_pair_is_made_once_and_room_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setattr(cost, "SHAPES", {**SHAPES, "e2b": SMALL})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**30))
    with pytest.raises(RigError, match="make room"):
        cost.make("e2b")
    monkeypatch.undo()
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setattr(cost, "SHAPES", {**SHAPES, "e2b": SMALL})
    made: list[int] = []
    total = cost.missing_values("e2b")
    cost.make("e2b", made.append)
    assert sum(made) == total > 0
    for role, name in zip(random_pair.ROLES, cost.names("e2b"), strict=True):
        file = open_gguf(places.model_file(name))
        size = sum(tensor.nbytes for tensor in file.tensors)
        assert size == random_pair.size_of(SMALL, role, "q4_0")
    cost.make("e2b", made.append)
    assert sum(made) == total


def test_figures_by_hand(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    fake(rate="2000", speed_ups="1:1.25,2:0.8", accept="1,0")
    summary = measured(tiny, tmp_path / "run", QUICK="1", COST_ACCEPT="0.4")
    arms = {arm["arm"]: arm for arm in summary["arms"]}
    assert arms["none"]["speed_up"] is None
    assert arms["none"]["step_cost"] is None
    one = arms["n=1 at 0.4"]
    assert one["speed_up"]["ratio"] == 1.25
    assert one["kept_set"] == 0.4
    assert arms["n=2 at 0.4"]["kept_set"] == 0.28
    # 48 tokens: one first, then 1 and 0 accepted in turn make 2 and 1: 15 such pairs are 45, then
    # 1 accepted makes the last 2. 47 tokens in 31 steps, at 1.25 times the speed.
    assert one["kept"]["accepted"] == 2 * 16
    assert one["step_cost"] == pytest.approx(47 / 31 / 1.25, rel=1e-5)
    rows = {row["draft_length"]: row for row in summary["break_even"]}
    assert (rows[1]["why"], rows[1]["at"]) == ("below", None)
    assert (rows[2]["why"], rows[2]["at"]) == ("above", None)
    by_cost = {"value": pytest.approx(47 / 31 / 1.25 - 1, rel=1e-4), "low": None, "high": None}
    assert rows[1]["by_cost"] == by_cost
    text = (tmp_path / "run" / report.REPORT).read_text()
    assert "The weights are made up and the text is meaningless" in text
    said = "at every acceptance measured (0.4, no interval)"
    assert f"n=1 not found: faster {said}; n=2 not found: slower {said}" in text
    assert "pays" not in text
    assert "| 0.21 (no interval) |" in text
    assert "Known-answer pair" not in text


def test_several_rounds_give_intervals(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    fake(rate="2000", speed_ups="1:1.25,2:0.8,3:1.6", accept="1,0")
    summary = measured(tiny, tmp_path / "run", COST_ACCEPT="0.4")
    rows = {row["draft_length"]: row for row in summary["break_even"]}
    for row in rows.values():
        # The fake's speed is exact, so the intervals have no width.
        for found in (row["step_cost"], row["by_cost"]):
            assert found["low"] == found["value"] == found["high"] is not None
    # 47 tokens are 31 steps at any length, since the fake accepts 1 and 0 in turn.
    assert rows[3]["over_shorter"]["value"] == pytest.approx(0.5, rel=0.1)
    text = (tmp_path / "run" / report.REPORT).read_text()
    assert "**A longer draft was cheaper**: a step at n=3 took 0.5" in text
    assert "at n=2 took" not in text
    assert "| 1.250 1.250 1.250 1.250 | pays" in text
    assert "n=3 not found: faster at every acceptance measured (0.4);" in text


def arm(accept: float, ratio: float, wide: float | None = 1.1) -> Any:
    up: dict[str, Any] = {"ratio": ratio, "low": None, "high": None, "verdict": "unknown"}
    if wide is not None:
        up |= {"low": ratio / wide, "high": ratio * wide}
        up["verdict"] = "pays" if up["low"] > 1 else "loses" if up["high"] < 1 else "even"
    return {"draft_length": 2, "accept": accept, "speed_up": up}


SURE = {"step_cost": {"value": 1.8, "low": 1.7, "high": 1.9}}
UNSURE = {"step_cost": {"value": 1.8, "low": None, "high": None}}


@pytest.mark.parametrize(
    ("ratios", "wide", "words"),
    [
        ((0.8, 1.25, 1.5), 1.1, "0.55 (95%: 0.5"),
        ((0.8, 1.25, 1.5), 1.3, "0.55 (95%: below 0.5 to 0.6"),
        ((0.8, 1.25, 1.5), 1.6, "0.55 (95%: below 0.5 to above 0.7)"),
        ((0.8, 1.25, 1.5), None, "0.55 (no interval)"),
        ((1.2, 1.3, 1.4), 1.1, "not found: faster at every acceptance measured (0.5 to 0.7)"),
        (
            (1.05, 1.3, 1.4),
            1.1,
            "not found: faster at every acceptance measured (0.5 to 0.7), but not surely so at",
        ),
        ((0.7, 0.8, 0.9), 1.1, "not found: slower at every acceptance measured (0.5 to 0.7)"),
        ((1.2, 0.8, 0.9), 1.1, "not clear: faster at some and slower at higher acceptances"),
        ((1.2, 0.8, 1.2), 1.1, "not clear: faster at some and slower at higher acceptances"),
    ],
)
def test_break_even_between_points(
    ratios: tuple[float, ...], wide: float | None, words: str
) -> None:
    arms = [arm(accept, up, wide) for accept, up in zip((0.5, 0.6, 0.7), ratios, strict=True)]
    row: Any = {**cost_summary._break_even(arms, 2), **(SURE if wide else UNSURE)}
    said = cost_report.in_words(row)
    assert said.startswith(words)
    assert ("not surely" in said) is ("not surely" in words)
    nothing: Any = cost_summary._break_even([], 2)
    assert cost_report.in_words(nothing) == "not measured"


def steps(*costs: float) -> dict[tuple[str, str], float]:
    """Step costs of two cells in two rounds."""
    keys = [("a", "1"), ("b", "1"), ("a", "2"), ("b", "2")]
    return dict(zip(keys, costs, strict=True))


def test_by_cost_has_the_interval_of_the_step_cost() -> None:
    shorter, own = steps(2, 2, 2, 2), steps(1.7, 1.72, 1.69, 1.71)
    row: Any = cost_summary._by_cost({1: shorter, 3: own}, 3)
    cost, by_cost = row["step_cost"], row["by_cost"]
    assert cost["low"] < cost["value"] < cost["high"]
    for end, dear in cost.items():
        assert by_cost[end] == pytest.approx(acceptance_for(dear, 3), rel=1e-4)
    assert row["shorter"] == 1
    assert row["over_shorter"]["value"] == pytest.approx(cost["value"] / 2, rel=1e-5)
    assert row["over_shorter"]["high"] < 1
    assert cost_summary._by_cost({1: shorter, 3: own}, 1)["over_shorter"] is None


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ((1.9, 1.91, 1.95, 1.96), "0.93 (95%: "),
        ((1.9, 1.91, 1.95, 1.96), " to never)"),
        ((2.5, 2.51, 2.5, 2.51), "never"),
        ((0.9, 0.9, 0.9, 0.9), "0.00 (95%: 0.00 to 0.00)"),
    ],
)
def test_by_cost_in_words(costs: tuple[float, ...], words: str) -> None:
    row: Any = cost_summary._by_cost({1: steps(*costs)}, 1)
    assert words in cost_report.by_cost_in_words(row)


def test_by_cost_of_one_round_has_no_interval() -> None:
    row: Any = cost_summary._by_cost({1: {("a", "1"): 1.5, ("b", "1"): 1.6}}, 1)
    assert cost_report.by_cost_in_words(row) == "0.55 (no interval)"


@pytest.mark.engine
def test_the_server_accepts_what_is_set(tiny: Rig, real_engine: Engine, tmp_path: Path) -> None:
    settings = {"QUICK": "1", "COST_ACCEPT": "0.6", "LLAMA_SERVER": str(real_engine.server)}
    summary = measured(tiny, tmp_path / "run", measure_as_process, **settings)
    for arm in summary["arms"][1:]:
        length, kept = arm["draft_length"], arm["kept"]
        assert len(kept["accepted_per_pos"]) == length
        # Two replies of 48 tokens: the seeds are fixed, so this holds always or never.
        assert kept["share"] == pytest.approx(arm["kept_set"], abs=0.12)
        assert kept["accepted_per_pos"] == sorted(kept["accepted_per_pos"], reverse=True)
    assert summary["flags"]["ended_early"] == 0
