"""What tune writes into tpu.env, and when it must not."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from common import report, rig
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.kinds.tune import apply as tune_apply
from common.kinds.tune import course as tune
from common.kinds.tune import plan as tune_plan
from common.kinds.tune import rows as tune_rows
from common.kinds.tune import summary as tune_summary
from common.kinds.tune.course import Course
from common.measure import run as run_folder
from common.measure.plan import Arm
from common.measure.stats import SpeedUp
from common.rig import Rig
from scripts import _measuring
from scripts import tune as tune_script
from tests.conftest import Run
from tests.kinds.tune.world import Noise, Truth, World, by_length, flat


def made_run(of: Rig, truth: Truth, name: str = "2026-01-02-tune-cpu", quick: bool = False) -> Path:
    """A finished run directory of this rig, on a machine of known speed."""
    base = tune_plan.base(of)
    plan = tune_plan.plan(base, quick=quick)
    manifest = _measuring._manifest(base, plan, Engine(Path("llama-server"), {}))
    out = of.runs_folder / name
    with run_folder.create(base, "tune", json.loads(json.dumps(manifest)), out) as current:
        world = World(tune.space_of(current.manifest), truth, Noise(trial=0.005, setting=0), 1)
        world.tuned()
        for line in world.lines:
            current.append(run_folder.JOURNAL, line)
        current.finish()
    report.write(out)
    return out


@pytest.fixture
def one(tiny: Rig) -> Rig:
    """The known-answer rig with a draft length that is not the best."""
    path = tiny.folder / "tpu.env"
    path.write_text(path.read_text().replace("SPEC_DRAFT_N_MAX=2\n", "SPEC_DRAFT_N_MAX=1\n"))
    return rig.load(tiny.folder)


def test_only_the_changed_lines_and_a_note(one: Rig) -> None:
    path = one.folder / "tpu.env"
    before = path.read_text()
    assert tune_apply.apply(one, made_run(one, by_length)) == {"SPEC_DRAFT_N_MAX": "2"}
    found = json.loads((one.runs_folder / "2026-01-02-tune-cpu" / report.SUMMARY).read_text())
    up = found["recommendation"]["speed_up"]
    interval = f"95% {up['low']:.3f} to {up['high']:.3f}"
    note = (
        f"# set by make tune: for chat, {up['ratio']:.3f}x ({interval}) of the setting before; run "
        "2026-01-02-tune-cpu\n"
    )
    assert up["ratio"] == pytest.approx(1.4 / 1.25, rel=0.05)
    assert path.read_text() == before.replace("SPEC_DRAFT_N_MAX=1\n", f"{note}SPEC_DRAFT_N_MAX=2\n")
    assert rig.load(one.folder).spec_draft_n_max == 2


def test_a_second_tune_replaces_the_first_ones_note(one: Rig) -> None:
    tune_apply.apply(one, made_run(one, by_length))
    again = rig.load(one.folder)

    def backwards(settings: Mapping[str, str]) -> float:
        return 2 - by_length(settings) if settings["SPEC_TYPE"] else 0.5

    changes = tune_apply.apply(again, made_run(again, backwards, "2026-01-03-tune-cpu"))
    assert changes["SPEC_DRAFT_N_MAX"] == "4"
    text = (one.folder / "tpu.env").read_text()
    assert "2026-01-02" not in text
    assert text.count(tune_apply.NOTE) == len(changes)


def test_nothing_is_written_where_nothing_is_recommended(one: Rig) -> None:
    before = (one.folder / "tpu.env").read_bytes()
    folder = made_run(one, flat)
    assert tune_apply.apply(one, folder) == {}
    assert (one.folder / "tpu.env").read_bytes() == before
    answer = report.answer(folder)
    assert "for chat, change nothing:" in answer


def rewritten(folder: Path, **inputs: object) -> Path:
    """The run with other inputs in its manifest; None takes one out."""
    path = folder / run_folder.MANIFEST
    manifest = json.loads(path.read_text())
    changed = {**manifest["plan"]["inputs"], **inputs}
    manifest["plan"]["inputs"] = {key: value for key, value in changed.items() if value is not None}
    path.write_text(json.dumps(manifest))
    return folder


def test_a_run_of_the_rule_before_is_reported_if_its_tasks_were_distinct(one: Rig) -> None:
    folder = rewritten(made_run(one, by_length), rule=None)
    text = (folder / report.REPORT).read_text()
    report.write(folder)
    assert (folder / report.REPORT).read_text() == text
    rewritten(folder, workload="documents")
    with pytest.raises(RigError, match="of documents asked the same tasks in several rounds"):
        report.write(folder)


def test_a_finished_run_that_todays_rules_would_go_on_with_is_refused(one: Rig) -> None:
    folder = made_run(one, by_length)
    path = folder / run_folder.JOURNAL
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"confirm-16"' not in line))
    with pytest.raises(RigError, match="today's rules would have measured on; measure anew"):
        report.write(folder)


def test_compare_shows_each_round(one: Rig) -> None:
    folder = made_run(one, by_length)
    summary = json.loads((folder / report.SUMMARY).read_text())
    manifest = run_folder.read_manifest(folder)
    found = [row for row in tune_rows.rows(summary, manifest) if row]
    (over,) = [
        row for row in found if (row["quantity"], row["arm"]) == ("speed_over_current", "n=2")
    ]
    (row,) = [row for row in summary["confirm"]["rows"] if row["arm"] == "n=2"]
    assert (over["note"] or "").split()[2:] == [f"{ratio:.3f}" for ratio in row["by_round"]]
    assert len(row["by_round"]) == 16


def test_why_nothing_is_recommended() -> None:
    course = Course(Arm("n=2", {}), winner=Arm("n=1", {"SPEC_DRAFT_N_MAX": "1"}))
    some = {str(index): 2.0 if index < 10 else 0.9 for index in range(16)}
    for up, why in (
        (SpeedUp(1.3, 1.1, 1.5, some), "was faster in only 10 of 16 rounds on other prompts"),
        (SpeedUp(1.3, 0.9, 1.5, some), "is not surely 1% faster on other prompts"),
    ):
        course.confirmed = up
        found = tune_summary.recommendation("chat", course, None)
        assert found["changes"] == {}
        assert why in found["reason"]


def test_no_drafter_that_was_not_chosen_but_is_ahead_is_said(one: Rig) -> None:
    folder = made_run(one, by_length)
    assert "no drafter" not in report.answer(folder)
    path = folder / report.SUMMARY
    summary = json.loads(path.read_text())
    rows = {row["arm"]: row for row in summary["confirm"]["rows"]}
    up = rows["n=2"]["over_current"]
    rows["none"]["over_current"] = {**up, "ratio": 2.0, "low": 1.8, "high": 2.2}
    rows["n=2"]["over_none"] = {**up, "ratio": 0.6, "low": 0.5, "high": 0.7}
    path.write_text(json.dumps(summary))
    said = "no drafter, which was not chosen, ran at 2.000x (1.800 to 2.200) the speed of n=1"
    assert said in report.answer(folder)


def test_a_rig_that_has_changed_since_is_left_alone(one: Rig) -> None:
    folder = made_run(one, by_length)
    path = one.folder / "tpu.env"
    path.write_text(path.read_text().replace("CTX_SIZE=8192\n", "CTX_SIZE=4096\n", 1))
    before = path.read_bytes()
    with pytest.raises(RigError, match="was measured with CTX_SIZE=8192"):
        tune_apply.apply(rig.load(one.folder), folder)
    assert path.read_bytes() == before


def test_what_is_no_finished_tune_run_of_this_rig_is_refused(one: Rig) -> None:
    quick = made_run(one, by_length, "quick", quick=True)
    with pytest.raises(RigError, match="a quick run is a look"):
        tune_apply.apply(one, quick)
    with pytest.raises(RigError, match="not a run directory"):
        tune_apply.apply(one, one.folder)
    other = made_run(one, by_length)
    manifest = json.loads((other / run_folder.MANIFEST).read_text())
    (other / run_folder.MANIFEST).write_text(json.dumps({**manifest, "ended": None}))
    with pytest.raises(RigError, match="not a finished tune run"):
        tune_apply.apply(one, other)


def test_a_setting_from_the_environment_is_not_the_files(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made_run(one, by_length)
    monkeypatch.setenv("SPEC_DRAFT_N_MAX", "1")
    with pytest.raises(RigError, match="SPEC_DRAFT_N_MAX comes from the environment"):
        tune_apply.apply(rig.load(one.folder), folder)
    measured = made_run(rig.load(one.folder), by_length, "with-environment")
    assert "**Not as tpu.env says**: SPEC_DRAFT_N_MAX" in (measured / report.REPORT).read_text()
    monkeypatch.delenv("SPEC_DRAFT_N_MAX")
    with pytest.raises(RigError, match="SPEC_DRAFT_N_MAX came from the environment"):
        tune_apply.apply(rig.load(one.folder), measured)


def test_a_finished_run_is_applied_without_measuring_again(
    one: Rig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made_run(one, by_length)
    monkeypatch.setenv("RUN", str(folder))
    before = (one.folder / "tpu.env").read_bytes()
    code, out, err = run(tune_script.body, one)
    assert (code, out, err) == (0, "SPEC_DRAFT_N_MAX=2\n", "")
    assert (one.folder / "tpu.env").read_bytes() == before  # nothing without APPLY=1
    monkeypatch.setenv("APPLY", "1")
    code, out, _err = run(tune_script.body, one)
    assert code == 0
    assert out == f"SPEC_DRAFT_N_MAX=2\nwritten into {one.folder / 'tpu.env'}\n"
    assert rig.load(one.folder).spec_draft_n_max == 2
    monkeypatch.setenv("RUN", str(one.folder))
    code, _out, err = run(tune_script.body, one)
    assert code == 1
    assert "is it a tune run?" in err
