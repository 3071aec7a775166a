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


@pytest.mark.parametrize("value", ["1.5", "0", "a", "0.5,,0.6", "nan"])
@pytest.mark.parametrize("key", ["COST_ACCEPT", "SPEC_SYNTH_RATES"])
def test_bad_shares(tiny: Rig, key: str, value: str) -> None:
    with pytest.raises(RigError, match=f"{key}={value}: expected shares between 0 and 1"):
        tiny.variant({key: value})


def test_acceptance_that_is_set_is_said_on_any_report() -> None:
    summary: Any = {"quick": False, "complete": True}
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
    assert rows[1]["by_cost"] == pytest.approx(47 / 31 / 1.25 - 1, rel=1e-4)
    text = (tmp_path / "run" / report.REPORT).read_text()
    assert "The weights are made up and the text is meaningless" in text
    assert "n=1 below 0.4, the least measured, about 0.21 by cost" in text
    assert "n=2 above 0.4, the most measured" in text
    assert "Known-answer pair" not in text


def test_break_even_between_points() -> None:
    def arm(accept: float, ratio: float) -> Any:
        up = {"ratio": ratio, "low": ratio / 1.1, "high": ratio * 1.1}
        return {"draft_length": 2, "accept": accept, "speed_up": up, "step_cost": 1.8}

    arms = [arm(0.5, 0.8), arm(0.6, 1.0 / 0.8), arm(0.7, 1.5)]
    row: Any = cost_summary._break_even(arms, 2)
    assert row["at"] == pytest.approx(0.55)
    assert row["low"] < 0.55 < row["high"]
    assert row["by_cost"] == pytest.approx(acceptance_for(1.8, 2), rel=1e-5)
    assert cost_report.in_words(row).startswith("0.55 (95%: 0.5")
    assert cost_report.in_words(cost_summary._break_even([], 2)) == "not measured"


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
