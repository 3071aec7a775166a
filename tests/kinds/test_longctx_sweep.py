"""longctx, sweep and longmixed on the one loop: exact prompts, infeasible cells, faults, resume."""

import ast
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from common import report
from common.compare import map as rig_map
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.kinds.longctx import plan as longctx
from common.kinds.longctx import report as longctx_report
from common.kinds.sweep import plan as sweep
from common.kinds.sweep import report as sweep_report
from common.measure import loop, run, stats
from common.measure import plan as measure_plan
from common.measure import rows as measure_rows
from common.rig import ROOT, Rig
from tests.helpers.limits import HANG_S
from tests.helpers.run_script import Done, begin, measure, measure_as_process
from tests.measure.test_texts import Words

Fake = Callable[..., Engine]
LONGCTX = {"LONGCTX_DEPTHS": "0,64,9000", "LONGCTX_N_MAX": "2", "LONGCTX_CTX_SIZE": "4096"}
SWEEP = {"SWEEP_PARALLEL": "2", "SWEEP_CTX_SIZE": "2048", "SWEEP_PROMPTS": "mixed"}


def start(name: str, rig: Rig, **environment: str) -> "subprocess.Popen[str]":
    return begin(name, rig, **{"QUICK": "1", **environment})


def finish(
    name: str, rig: Rig, how: Callable[..., Done] = measure, /, **environment: str
) -> dict[str, Any]:
    """Run to the end; returns the summary."""
    done = how(name, rig, **{"QUICK": "1", **environment})
    assert done.code == 0, done.err
    (folder,) = rig.runs_folder.iterdir()
    return dict(json.loads((folder / report.SUMMARY).read_text()))


def test_long_context_by_depth(tiny: Rig, fake: Fake) -> None:
    fake(rate="2000", speed_ups="2:1.25", accept="2,0")
    summary = finish("longctx", tiny, measure_as_process, **LONGCTX)
    rows = {(row["depth"], row["arm"]): row for row in summary["rows"]}
    for depth in (0, 64):
        assert rows[depth, "none"]["tokens_per_second"] == 2000
        assert rows[depth, "none"]["kept"] is None
        assert rows[depth, "n=2"]["speed_up"]["ratio"] == 1.25
        assert rows[depth, "n=2"]["trials"] == 3
        assert rows[depth, "n=2"]["reading_per_second"] == 2000
    assert rows[9000, "n=2"]["speed_up"] is None
    assert [cell["cell"] for cell in summary["infeasible"]] == [
        "9000-story",
        "9000-code",
        "9000-summary",
    ]
    assert "do not fit a context of 4096" in summary["infeasible"][0]["reason"]
    assert summary["gone"][0]["why"] == "holds"
    assert summary["gone"][0]["everywhere"] == "unknown"
    assert summary["failed"] == []


def test_a_document_shorter_than_the_depth_is_infeasible(
    tiny: Rig, fake: Fake, tmp_path: Path
) -> None:
    fake()
    (tmp_path / "short.txt").write_text("only four words here")
    summary = finish("longctx", tiny, **LONGCTX, LONGCTX_DOC=str(tmp_path / "short.txt"))
    reasons = {cell["cell"]: cell["reason"] for cell in summary["infeasible"]}
    assert "is shorter than 64 tokens" in reasons["64-story"]


def test_a_sweep_counts_every_token_and_request(tiny: Rig, fake: Fake) -> None:
    fake(rate="1000", speed_ups="2:0.5", accept="1,0")
    summary = finish("sweep", tiny, **SWEEP)
    (folder,) = tiny.runs_folder.iterdir()
    for line in run.read_lines(folder, run.JOURNAL):
        at_once = int(line["cell"].split("-x")[1].split("-")[0])
        tokens = int(line["cell"].split("-")[2])
        assert [sample["predicted_n"] for sample in line["samples"]] == [tokens] * at_once
    assert {row["at_once"] for row in summary["rows"]} == {1, 2}
    for row in summary["ratios"]:
        for layout in ("per-slot", "shared"):
            up = row["drafter"][layout]
            assert up["ratio"] == pytest.approx(0.5, abs=0.15)
            assert (up["low"], up["verdict"]) == (None, "unknown")
    assert {turn["why"] for turn in summary["turns"]} == {"never"}
    assert summary["failed"] == summary["infeasible"] == []
    place = rig_map.write(tiny, print)
    assert "unknown" in place.read_text()
    assert place.with_name(rig_map.FIGURE).is_file()


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ("die-in:5", "llama-server has ended"),
        ("error:5", "HTTP 500"),
        ("cut:5", "ended before it was done|connection lost"),
    ],
)
def test_a_fault_marks_its_batch_and_the_rest_goes_on(
    tiny: Rig, fake: Fake, tmp_path: Path, fault: str, word: str
) -> None:
    fake(fault=fault, once=str(tmp_path / "done"))
    summary = finish("sweep", tiny, **SWEEP)
    (failed,) = summary["failed"]
    assert any(part in failed["reason"] for part in word.split("|"))
    (folder,) = tiny.runs_folder.iterdir()
    lines = run.read_lines(folder, run.JOURNAL)
    keys = [(line["round"], line["arm"], line["cell"]) for line in lines]
    assert len(keys) == len(set(keys)) == 4 * 4
    text = (folder / report.REPORT).read_text()
    assert "## Failed" in text
    assert failed["cell"] in text
    # the failed batch is in no average: its arm has one batch fewer there
    missing = [row for row in summary["rows"] if row["trials"] == 0]
    assert [row["arm"] for row in missing] == [failed["arm"]]


def test_a_request_that_stalls_is_a_failure_with_its_reason(
    tiny: Rig, fake: Fake, tmp_path: Path
) -> None:
    plan = sweep.sweep_plan(tiny.variant({"PARALLEL": "2"}), Words(""), quick=True)
    short = measure_plan.Plan(
        "sweep", plan.arms[:1], plan.cells[:1], plan.rounds, True, 1.0, mark_failures=True
    )
    engine = fake(fault="hang:2")
    with run.create(tiny, "sweep", {"plan": short.to_json()}, tmp_path / "run") as current:
        loop.measure(short, tiny, engine, current, lambda *_: None)
    (line,) = run.read_lines(tmp_path / "run", run.JOURNAL)
    assert "no end after 1 s" in line["failed"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_is_stopped_goes_on(tiny: Rig, fake: Fake, how: signal.Signals) -> None:
    fake(rate="800")
    process = start("sweep", tiny, **SWEEP)
    while not tiny.runs_folder.exists() or len(journal(tiny)) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(how)
    process.communicate(timeout=HANG_S)
    before = journal(tiny)
    time.sleep(0.3)
    for other in psutil.process_iter(["cmdline"]):
        assert f"--port {tiny.port}" not in " ".join(other.info["cmdline"] or [])
    fake()
    finish("sweep", tiny, **SWEEP, RESUME="1")
    after = journal(tiny)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == 4 * 4


def journal(rig: Rig) -> list[tuple[str, str, str]]:
    (folder,) = rig.runs_folder.iterdir()
    return [(ln["round"], ln["arm"], ln["cell"]) for ln in run.read_lines(folder, run.JOURNAL)]


def test_prompts_are_exact_and_none_is_asked_twice(tiny: Rig) -> None:
    words = Words("")
    rig = sweep.sweep_base(tiny).variant({"SWEEP_PROMPTS": "mixed,repeat"})
    plan = sweep.sweep_plan(rig, words)
    texts = [body["messages"][0]["content"] for cell in plan.cells for body in cell.bodies]
    assert len(set(texts)) == len(texts)
    for cell in plan.cells:
        at_once = cell.about["at_once"]
        counts = [words.count(body["messages"][0]["content"]) for body in cell.bodies]
        asked = list(zip(counts, (body["max_tokens"] for body in cell.bodies), strict=True))
        if cell.users:
            assert cell.users == at_once
            assert asked == [sweep.SHAPES[i % 2] for i in range(3 * at_once)]
        else:
            assert {f"{size}/{out}" for size, out in asked} == {cell.about["shape"]}
            assert len(asked) == at_once


def test_every_round_of_a_sweep_has_its_own_requests(tiny: Rig) -> None:
    """As many of each kind, few at once before many, and back in the next round."""
    rig = sweep.sweep_base(tiny).variant({"SWEEP_PARALLEL": "4", "PARALLEL": "4"})
    plan = sweep.sweep_plan(rig, Words(""))
    *turns, drift = plan.rounds
    assert [turn.kind for turn in turns] == ["greedy"] * 4
    cells = [plan.asked(turn) for turn in turns]
    assert sum(map(len, cells)) == len({cell.name for own in cells for cell in own})
    assert len(plan.cells) == sum(map(len, cells))
    per_place = [sorted((c.about["at_once"], c.about.get("shape", "")) for c in o) for o in cells]
    assert per_place[0] == per_place[1] == per_place[2] == per_place[3]
    assert per_place[0].count((1, "128/512")) == 4
    assert per_place[0].count((2, "128/512")) == 2
    assert per_place[0].count((4, "128/512")) == per_place[0].count((4, "")) == 1
    for index, own in enumerate(cells):
        order = [cell.about["at_once"] for cell in own]
        assert order == sorted(order, reverse=bool(index % 2))
    again = plan.asked(drift)
    assert [cell.name for cell in again] == [cell.name for cell in cells[0] if not cell.users]


def test_a_base_model_is_sampled(tiny: Rig) -> None:
    base = sweep.sweep_base(tiny.variant({"CHAT_TEMPLATE": "none"}))
    for plan in (
        sweep.sweep_plan(base, Words(""), quick=True),
        longctx.plan(longctx.base(base), Words(""), quick=True),
    ):
        assert plan.rounds[0].kind == "sampled"
        assert plan.rounds[0].sampling["temperature"] == 0.8


def test_documents_are_disjoint(tiny: Rig, tmp_path: Path) -> None:
    """No two requests of a round have a sentence of the document in common."""
    path = tmp_path / "doc.txt"
    path.write_text(" ".join(f"word{number}" for number in range(40_000)))
    loads = {"LONGMIXED_PARALLEL": "2", "LONGCTX_DOC": str(path)}
    rig = sweep.longmixed_base(tiny.variant(loads))
    plan = sweep.longmixed_plan(rig, Words(""))
    for turn in plan.rounds[:4]:
        seen: set[str] = set()
        for body in (body for cell in plan.asked(turn) for body in cell.bodies):
            own = set(re.findall(r"word\d+ ", body["messages"][0]["content"])[1:])
            assert len(own) > 400
            assert not own & seen
            seen |= own
    short = tiny.variant({**loads, "LONGMIXED_PARALLEL": "8"})
    with pytest.raises(RigError, match=r"doc\.txt is too short: .* lower LONGMIXED_PARALLEL"):
        sweep.longmixed_plan(sweep.longmixed_base(short), Words(""))


def test_each_depth_has_tasks_of_its_own(tiny: Rig) -> None:
    depths = {"LONGCTX_DEPTHS": "0,64,128,256", "LONGCTX_CTX_SIZE": "4096"}
    plan = longctx.plan(longctx.base(tiny.variant(depths)), Words(""))
    tasks = [cell.bodies[0]["messages"][0]["content"].split("\n\n")[-1] for cell in plan.cells]
    assert len(set(tasks)) == len(tasks) == 12
    orders = {tuple(cell.name for cell in plan.asked(turn)) for turn in plan.rounds}
    assert orders == {tuple(cell.name for cell in plan.cells)}
    names = [(turn.name, arm.name) for turn, arm in plan.blocks()]
    assert [arm for turn, arm in names if turn == "greedy-2"] == ["n=2", "n=1", "none"]
    assert len(names) == 4 * 3 + 1
    many = longctx.base(tiny.variant({"LONGCTX_DEPTHS": ",".join(map(str, range(0, 90, 10)))}))
    with pytest.raises(RigError, match="LONGCTX_DEPTHS: at most 8 depths"):
        longctx.plan(many, Words(""))


def test_more_than_a_slot_holds_is_infeasible(tiny: Rig) -> None:
    rig = tiny.variant({"PARALLEL": "16", "CTX_SIZE": "8192"})
    plan = sweep.sweep_plan(rig, Words(""), quick=True)
    assert {cell.infeasible for cell in plan.cells} == {
        "a request needs 704 tokens, a slot has 512 (context / slots)"
    }


def test_a_rig_without_slots_says_what_to_set(tiny: Rig) -> None:
    with pytest.raises(RigError, match="set SWEEP_PARALLEL and SWEEP_CTX_SIZE"):
        sweep.sweep_base(tiny.variant({"SWEEP_PARALLEL": ""}))


def test_where_a_gain_is_gone() -> None:
    assert stats.crossing([(0, 2.0), (100, 0.5)]) == pytest.approx(50)
    assert stats.crossing([(0, 1.5), (100, 1.2)]) is None
    assert stats.crossing([(0, 0.9), (100, 0.5)]) is None

    def up(ratio: float) -> Any:
        return {"ratio": ratio, "low": ratio * 0.9, "high": ratio * 1.1}

    found: Any = measure_rows.crossing([(0, up(1.5)), (1000, up(1.05)), (2000, up(0.7))])
    assert found["low"] < found["at"] < found["high"]
    assert measure_rows.crossing([(0, up(0.8))])["why"] == "never"
    assert measure_rows.crossing([(0, up(1.8))])["why"] == "holds"


def reach(model: Any, *points: tuple[float, float, str]) -> Any:
    """How far a gain reaches that is `ratio` at x, 10% either way."""
    given: list[tuple[float, Any]] = [
        (x, {"ratio": ratio, "low": ratio * 0.9, "high": ratio * 1.1, "verdict": verdict})
        for x, ratio, verdict in points
    ]
    most = points[-1][0]
    found: Any = {**measure_rows.reach(given), "most": most, "deepest": most}
    return model.in_words(found)


def test_a_gain_is_told_as_far_as_it_is_sure() -> None:
    pays, even, loses, unknown = "pays", "even", "loses", "unknown"
    level = ((1, 1.5, pays), (4, 1.2, pays), (8, 0.98, even))
    said = [
        ((1, 1.5, pays), (8, 1.3, pays)),
        ((1, 1.0, even), (8, 1.3, pays)),
        ((1, 1.5, pays), (2, 1.3, pays), (8, 1.05, even)),
        level,
        ((1, 1.05, even), (8, 0.98, even)),
        ((1, 0.8, loses), (8, 0.7, loses)),
        ((1, 1.5, pays), (8, 0.5, loses)),
        ((1, 1.5, unknown), (8, 0.5, unknown)),
    ]
    many: list[str] = [reach(sweep_report, *points) for points in said]
    deep: list[str] = [reach(longctx_report, *points) for points in said]
    assert many[:-2] == [
        "the drafter still gains at 8 at once, the most measured",
        "the drafter still gains at 8 at once, the most measured, though not at every number "
        "before it",
        "a clear gain to 2 at once, none that is sure at 8 at once",
        "a clear gain to 4 at once, none that is sure at 8 at once, where it is not sure to be "
        "gone either",
        "no clear gain at any number of requests to 8 at once",
        "the drafter loses at every number of requests to 8 at once",
    ]
    assert re.fullmatch(
        r"the gain is gone at about 3\.6 at once \(95%: 2\.9 to 4\.4\)|"
        r"the gain is gone at about .* at once \(95%: .* to .*\)",
        many[-2],
    )
    assert many[-1] == "too little was measured to say; that takes 3 rounds"
    assert deep[:-2] == [
        "still a gain at 8 tokens, the deepest measured",
        "still a gain at 8 tokens, the deepest measured, though not at every depth before it",
        "a clear gain to 2 tokens, none that is sure at 8 tokens",
        "a clear gain to 4 tokens, none that is sure at 8 tokens, where it is not sure to be gone "
        "either",
        "no clear gain at any depth to 8 tokens",
        "a loss at every depth to 8 tokens",
    ]
    assert deep[-2].startswith("gone at about")
    assert deep[-1] == "too little was measured to say; that takes 2 rounds"


def test_there_is_one_measuring_loop() -> None:
    """Only the loop sends the requests that are measured.

    The check of a server that has just started is not counted, server_tools.py asks for a person,
    and bench_client measures the client itself.
    """
    callers = set()
    scripts = [ROOT / "scripts" / f"{name}.py" for name in ("measure", "_measuring")]
    for path in [*ROOT.glob("common/**/*.py"), *scripts]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "client.ask":
                callers.add(path.relative_to(ROOT).as_posix())
    assert callers == {
        "common/measure/loop.py",
        "common/serving/process.py",
        "common/mcp/server_tools.py",
        "common/kinds/bench_client/plan.py",
    }
