"""make tune from end to end, against the fake server; what it asks, per rig and workload."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common import report, rig
from common.engines.llamacpp import serve
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.kinds.tune import course
from common.kinds.tune import plan as tune_plan
from common.measure import run
from common.rig import ROOT, Rig
from tests.helpers.run_script import Done, begin, measure
from tests.kinds.test_speed import assert_nothing_runs
from tests.measure.test_texts import Words

Fake = Callable[..., Engine]
# No drafter and two lengths: a quick run is at most 18 trials to choose, 12 to confirm, 3 more.
FEW = {"TUNE_LEVERS": "draft", "TUNE_N_MAX": "2", "QUICK": "1"}


def start(of: Rig, **environment: str) -> "subprocess.Popen[str]":
    return begin("tune", of, **{**FEW, **environment})


def finish(of: Rig, **environment: str) -> Done:
    return measure("tune", of, **{**FEW, **environment})


def folder(of: Rig) -> Path:
    (found,) = of.runs_folder.iterdir()
    return found


def summary(of: Rig) -> dict[str, Any]:
    return dict(json.loads((folder(of) / report.SUMMARY).read_text()))


def trials(of: Rig) -> list[tuple[str, str, str]]:
    lines = run.read_lines(folder(of), run.JOURNAL)
    return [(line["round"], line["arm"], line["cell"]) for line in lines]


def test_the_best_length_is_found_and_said(tiny: Rig, fake: Fake) -> None:
    fake(rate="300", speed_ups="1:1.5,2:0.7", accept="1")
    code, out, err = finish(tiny)
    assert (code, err) == (0, "")
    found = summary(tiny)
    assert (found["current"], found["winner"]) == ("n=2", "n=1")
    assert found["recommendation"]["workload"] == "chat"
    assert found["recommendation"]["changes"] == {"SPEC_DRAFT_N_MAX": "1"}
    up = found["recommendation"]["speed_up"]
    assert up["low"] > 1.5
    assert up["ratio"] == pytest.approx(1.5 / 0.7, rel=0.15)
    assert "SPEC_DRAFT_N_MAX=1\n" in out
    (stage,) = found["stages"]
    assert {row["arm"]: row["prompts"] for row in stage["rows"]}["n=2"] == 3
    assert found["stages"][0]["rows"][0]["dropped"]["failed"] is False
    text = (folder(tiny) / report.REPORT).read_text()
    assert "not run on a card" in text
    assert "set SPEC_DRAFT_N_MAX=1 (n=1, the best of 3 tried)" in text
    (row,) = [row for row in found["confirm"]["rows"] if row["arm"] == "n=1"]
    assert len(row["by_round"]) == 4
    assert " ".join(f"{ratio:.3f}" for ratio in row["by_round"]) in text
    assert "needs no correction for having been picked" in text
    again = {path: path.read_bytes() for path in folder(tiny).rglob("*.svg")}
    report.write(folder(tiny))
    assert (folder(tiny) / report.REPORT).read_text() == text
    assert again == {path: path.read_bytes() for path in folder(tiny).rglob("*.svg")}
    assert len(again) == 2


def test_killed_it_goes_on_where_it_was(tiny: Rig, fake: Fake) -> None:
    fake(rate="400", speed_ups="1:1.5,2:0.7")
    process = start(tiny)
    deadline = time.monotonic() + 60
    while not tiny.runs_folder.is_dir() or len(trials(tiny)) < 7:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.3)
    assert_nothing_runs(tiny)
    before = trials(tiny)
    report.write(folder(tiny))
    assert "nothing can be said yet: the run is not finished" in report.answer(folder(tiny))
    code, _out, err = finish(tiny, RESUME="1")
    assert code == 0, err
    done = trials(tiny)
    assert done[: len(before)] == before
    assert len(done) == len(set(done))
    assert summary(tiny)["complete"]
    assert summary(tiny)["winner"] == "n=1"


def test_a_setting_that_does_not_start_is_dropped(tiny: Rig, fake: Fake) -> None:
    fake(rate="400", flag_ups="-ub 256:2", refuses="-ub 1024")
    code, out, err = finish(tiny, TUNE_LEVERS="batch")
    assert code == 0, err
    rows = {row["arm"]: row for row in summary(tiny)["stages"][0]["rows"]}
    assert rows["n=2 ub=1024"]["dropped"]["failed"]
    assert "out of memory with -ub 1024" in rows["n=2 ub=1024"]["dropped"]["why"]
    assert summary(tiny)["winner"] == "n=2 ub=256"
    assert "UBATCH_SIZE=256" in out
    assert "out of memory with -ub 1024" in (folder(tiny) / report.REPORT).read_text()


def test_an_engine_that_never_starts_is_an_error(tiny: Rig, fake: Fake) -> None:
    fake(fault="exit")
    code, _out, err = finish(tiny)
    assert code == 1
    assert "the current setting (n=2) itself failed: llama-server ended at start" in err


def test_many_at_once_and_documents(tiny: Rig, fake: Fake) -> None:
    fake(rate="2000", speed_ups="1:1.5")
    code, _out, err = finish(tiny, TUNE_FOR="documents", TUNE_N_MAX="1")
    assert code == 0, err
    found = summary(tiny)
    assert found["workload"] == "documents"
    assert found["document"]["document"] == "made-up English, seed 11"
    shutil.rmtree(tiny.runs_folder)
    code, _out, err = finish(tiny, TUNE_FOR="many", TUNE_N_MAX="1", SWEEP_PARALLEL="2")
    assert code == 0, err
    assert summary(tiny)["slots"] == 2
    for line in run.read_lines(folder(tiny), run.JOURNAL):
        assert len(line["samples"]) == 2
    assert "-np 2" in (folder(tiny) / "starts.jsonl").read_text().replace('", "', " ")


def test_quick_apply_is_refused_before_anything_runs(tiny: Rig, fake: Fake) -> None:
    fake()
    code, _out, err = finish(tiny, APPLY="1")
    assert code == 1
    assert "a quick run is a look" in err
    code, _out, err = finish(tiny, APPLY="1", QUICK="", SPEC_DRAFT_N_MAX="1")
    assert code == 1
    assert "SPEC_DRAFT_N_MAX comes from the environment" in err
    assert not tiny.runs_folder.exists()


def options(of: Rig) -> dict[str, list[dict[str, str]]]:
    return {name: [dict(o) for o in found] for name, found in tune_plan.levers(of).items()}


def test_levers_by_rig_and_workload(tiny: Rig) -> None:
    assert list(options(tiny)) == ["draft", "types", "p-min"]
    assert list(options(tiny.variant({"TUNE_FOR": "documents"}))) == [
        "draft",
        "types",
        "p-min",
        "batch",
    ]
    assert list(options(tiny.variant({"TUNE_FOR": "many"})))[-1] == "kv-layout"
    for name in ("chat", "documents", "many"):
        assert "kv-type" not in options(tiny.variant({"TUNE_FOR": name}))
    assert options(tiny.variant({"TUNE_LEVERS": "kv-type", "TUNE_N_MAX": "1"})) == {
        "kv-type": [{"CACHE_TYPE_K": kind, "CACHE_TYPE_V": kind} for kind in ("f16", "q8_0")]
    }
    small = tiny.variant({"TUNE_LEVERS": "batch", "BATCH_SIZE": "512"})
    assert options(small)["batch"][-1] == {"UBATCH_SIZE": "1024", "BATCH_SIZE": "1024"}


@pytest.mark.parametrize("path", sorted(rig.all_rigs()), ids=lambda path: path.name)
def test_every_rig_can_be_tuned(path: Path) -> None:
    loaded = rig.load(path, environ={})
    for workload in ("chat", "many"):
        base = tune_plan.base(loaded.variant({"TUNE_FOR": workload}))
        plan = tune_plan.plan(base)
        assert plan.blocks()
        assert len(plan.cells) == 28
        asked = [
            str(body["messages"][-1]["content"]) for cell in plan.cells for body in cell.bodies
        ]
        choosing = asked[: len(asked) * 12 // 28]
        assert not set(choosing) & set(asked[len(choosing) :])
        if workload == "many":
            assert len(asked) == len(set(asked)) == 28 * (base.parallel or 0)


def test_an_n_gram_rig_is_tuned_by_its_types() -> None:
    loaded = rig.load(ROOT / "local-llamacpp-cpu-270m-q4_k_m", environ={})
    plan = tune_plan.plan(tune_plan.base(loaded))
    assert [arm.name for _, arm in plan.blocks()] == [
        "ngram-mod",
        "none",
        "ngram-simple",
        "ngram-map-k",
        "ngram-map-k4v",
    ]
    assert list(tune_plan.levers(loaded)) == ["draft", "types"]


def test_a_base_model_is_sampled_with_a_seed_per_round(tiny: Rig) -> None:
    base = tune_plan.base(tiny.variant({"CHAT_TEMPLATE": "none", "TUNE_LEVERS": "draft"}))
    plan = tune_plan.plan(base)
    found = {turn.name: turn.sampling for turn in plan.rounds}
    assert {name: sampling["seed"] for name, sampling in found.items()} == {
        **{f"draft-{index}": index for index in range(1, 5)},
        **{f"confirm-{index}": index for index in range(1, 17)},
        "drift": 1,
    }
    assert {sampling["temperature"] for sampling in found.values()} == {0.8}
    assert all(turn == plan.rounds[0] for turn, _ in plan.blocks())
    manifest: Any = {"settings": base.settings(), "plan": plan.to_json()}
    space = course.space_of(manifest)
    assert [*course.confirm_rounds(space), space.drift()] == plan.rounds[4:]
    greedy = tune_plan.plan(tune_plan.base(tiny)).rounds
    assert {tuple(turn.sampling.items()) for turn in greedy} == {(("temperature", 0), ("seed", 1))}


def test_documents_are_of_exact_length_and_each_its_own(tiny: Rig) -> None:
    base = tune_plan.base(tiny.variant({"TUNE_FOR": "documents"}))
    tokenizer = Words("")
    plan = tune_plan.plan(base, tokenizer, quick=True)
    texts = [str(cell.bodies[0]["messages"][-1]["content"]) for cell in plan.cells]
    documents = [text.rpartition("\n\n")[0] for text in texts]
    assert {tokenizer.count(text) for text in documents} == {500}
    assert len(set(documents)) == len(texts) == 10
    with pytest.raises(RigError, match="CTX_SIZE=600 is too small for 2000 tokens"):
        tune_plan.plan(base.variant({"CTX_SIZE": "600"}), tokenizer)


def test_slots_that_do_not_fit_are_refused(tiny: Rig) -> None:
    with pytest.raises(RigError, match="TUNE_FOR=many needs"):
        tune_plan.base(tiny.variant({"TUNE_FOR": "many", "CTX_SIZE": "2048"}))


def test_the_levers_are_flags_only_when_set(tiny: Rig) -> None:
    plain = serve.command(tiny, "s")
    assert not {"--spec-draft-p-min", "-b", "-ub"} & set(plain)
    line = " ".join(
        serve.command(
            tiny.variant({"SPEC_DRAFT_P_MIN": "0.5", "BATCH_SIZE": "1024", "UBATCH_SIZE": "256"}),
            "s",
        )
    )
    assert "--spec-draft-p-min 0.5" in line
    assert "-b 1024 -ub 256" in line
    with pytest.raises(RigError, match="one share between 0 and 1"):
        tiny.variant({"SPEC_DRAFT_P_MIN": "0.5,0.6"})
