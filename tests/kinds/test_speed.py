"""make speed from end to end, against the fake server: results, faults, resume."""

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from common import report
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.kinds.speed import plan as speed
from common.measure import arms, run
from common.rig import Rig
from tests.helpers.limits import HANG_S
from tests.helpers.run_script import Done, begin, measure, measure_as_process

Fake = Callable[..., Engine]
ARMS = {"SPEED_N_MAX": "2"}  # no drafter and one length: QUICK is then 3 starts, 9 trials
TRIALS = 9


def start(rig: Rig, **environment: str) -> "subprocess.Popen[str]":
    return begin("speed", rig, **{"QUICK": "1", **ARMS, **environment})


def finish(rig: Rig, **environment: str) -> Done:
    return measure("speed", rig, **{"QUICK": "1", **ARMS, **environment})


def folder(rig: Rig) -> Path:
    (found,) = rig.runs_folder.iterdir()
    return found


def trials(rig: Rig) -> list[tuple[str, str, str]]:
    return [
        (line["round"], line["arm"], line["cell"])
        for line in run.read_lines(folder(rig), run.JOURNAL)
        if line["failed"] is None
    ]


def assert_nothing_runs(rig: Rig) -> None:
    """No server of this rig is left: nothing has its port on its command line."""
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        assert f"--port {rig.port}" not in line, line


def summary(rig: Rig) -> dict[str, Any]:
    return dict(json.loads((folder(rig) / report.SUMMARY).read_text()))


def test_the_report_says_what_the_server_did(tiny: Rig, fake: Fake) -> None:
    fake(rate="2000", speed_ups="2:1.25", accept="2,0")
    code, out, err = finish(tiny)
    assert (code, err) == (0, "")
    found = summary(tiny)
    none, two = found["arms"]
    assert none["tokens_per_second"] == 2000
    assert none["kept"] is None
    assert none["speed_up"] is None
    assert two["tokens_per_second"] == 2500
    assert two["speed_up"]["ratio"] == 1.25
    assert two["speed_up"]["verdict"] == "unknown"
    # 64 tokens: one first, then drafts of 2 that keep 2 and 0 in turn. 15 pairs of drafts make 60,
    # one more draft makes the last 3. Three prompts, one round.
    assert two["kept"] == {
        "accepted": 3 * 32,
        "drafted": 3 * 62,
        "share": 0.516129,
        "drafts": 3 * 31,
        "accepted_per_pos": [3 * 16, 3 * 16],
    }
    text = (folder(tiny) / report.REPORT).read_text()
    assert "Quick run" in text
    assert "too little was measured to say; n=2 ran at 1.250x" in text
    assert "n=2 ran at 1.250x" in out
    assert_nothing_runs(tiny)


def test_a_whole_run_has_intervals_rounds_and_what_a_user_waits(tiny: Rig, fake: Fake) -> None:
    fake(rate="20000", speed_ups="2:1.25", accept="2,0", ttft_ms="50")
    done = measure_as_process("speed", tiny, **ARMS)
    assert (done.code, done.err) == (0, "")
    found = summary(tiny)
    two = found["arms"][1]
    assert two["speed_up"]["verdict"] == "pays"
    assert two["speed_up"]["rounds"] == {f"greedy-{turn}": 1.25 for turn in (1, 2, 3, 4)}
    assert found["best"] == {"arm": "n=2", "of": 1, "speed_up": two["speed_up"]}
    # 256 tokens behind 50 ms: a user gets less of the gain than the decode speed has.
    assert 1 < two["whole_reply"]["ratio"] < 1.15
    assert 50 <= two["ttft"]["p50"] <= 90
    assert two["reply"]["p99"] >= two["reply"]["p50"] > two["ttft"]["p50"]
    assert two["reading_per_second"] > 0
    assert [arm["arm"] for arm in found["beside"]] == ["none", "n=2"]
    assert set(found["beside"][1]["speed_up"]["rounds"]) == {"sampled-1", "sampled-2"}
    text = (folder(tiny) / report.REPORT).read_text()
    assert "n=2 pays: 1.250x (1.250 to 1.250) the speed of no drafter, 1." in text
    assert "| 1.250 1.250 1.250 1.250 |" in text
    assert "6 cells; rounds: 4 greedy, 2 sampled, 1 drift; at most 256 tokens a reply" in text


def test_two_token_counts_that_differ_are_told(tiny: Rig, fake: Fake) -> None:
    fake(fault="usage:3")  # of each of the three servers
    assert finish(tiny).code == 0
    assert summary(tiny)["flags"]["counts_disagree"] == 3
    assert "usage and timings that differ: 3." in (folder(tiny) / report.REPORT).read_text()


def test_a_stall_shows_where_the_stream_is_read_closely(tiny: Rig, fake: Fake) -> None:
    fake(rate="2000", stall_ms="200")
    assert finish(tiny, STREAM_GAPS="1").code == 0
    for arm in summary(tiny)["arms"]:
        assert arm["gaps"]["largest"] > 150
        assert arm["gaps"]["p50"] < 20
    text = (folder(tiny) / report.REPORT).read_text()
    assert re.search(r"\| gap ms, p50 / p99 +\| largest gap ms +\|\n", text)
    shutil.rmtree(folder(tiny))
    assert finish(tiny).code == 0
    assert [arm["gaps"] for arm in summary(tiny)["arms"]] == [None, None]
    assert "largest gap" not in (folder(tiny) / report.REPORT).read_text()


def test_out_names_the_folder(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    fake()
    out = tmp_path / "here"
    done = measure_as_process("speed", tiny, str(out), QUICK="1", **ARMS)
    assert done.code == 0, done.err
    assert (out / report.REPORT).is_file()
    assert not tiny.runs_folder.exists()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("die-in:3", ["llama-server has ended", "dying in the middle", "RESUME=1"]),
        ("die-after:3", ["llama-server ended|llama-server has ended", "RESUME=1"]),
        ("cut:3", ["failed", "RESUME=1"]),
        ("error:3", ["HTTP 500", "made up", "RESUME=1"]),
        ("no-timings:3", ["no timings", "RESUME=1"]),
        ("exit", ["ended at start with exit code 1", "cannot load the model"]),
        ("old-flag", ["too old for a flag"]),
    ],
)
def test_a_fault_is_one_message_and_resume_finishes(
    tiny: Rig, fake: Fake, tmp_path: Path, fault: str, words: list[str]
) -> None:
    fake(fault=fault, once=str(tmp_path / "done"))
    code, _out, err = finish(tiny)
    assert code == 1
    assert "Traceback" not in err
    assert err.count("error:") == 1 + ("invalid argument" in err)
    for word in words:
        assert re.search(word, err), err
    assert_nothing_runs(tiny)
    before = trials(tiny) if (folder(tiny) / run.JOURNAL).exists() else []
    code, _out, err = finish(tiny, RESUME="1")
    assert code == 0, err
    done = trials(tiny)
    assert done[: len(before)] == before
    assert len(done) == len(set(done)) == TRIALS
    assert summary(tiny)["complete"]
    assert_nothing_runs(tiny)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_at_any_point_it_goes_on(tiny: Rig, fake: Fake, how: signal.Signals) -> None:
    fake(rate="300")
    process = start(tiny)
    while not tiny.runs_folder.exists() or len(trials(tiny)) < 4:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(how)
    _out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(how, -9)
    assert "Traceback" not in err
    time.sleep(0.3)
    assert_nothing_runs(tiny)
    before = trials(tiny)
    assert 4 <= len(before) < TRIALS
    fake()
    code, _out, err = finish(tiny, RESUME="1")
    assert code == 0, err
    done = trials(tiny)
    assert done[: len(before)] == before
    assert len(done) == len(set(done)) == TRIALS


def test_resume_under_another_setting_is_refused(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    fake(fault="error:3", once=str(tmp_path / "done"))
    finish(tiny)
    code, _out, err = finish(tiny, RESUME="1", CTX_SIZE="4096")
    assert code == 1
    assert "CTX_SIZE was '8192', is now '4096'" in err


def test_nothing_kept_is_zero_not_absent(tiny: Rig, fake: Fake) -> None:
    fake(accept="0")
    code, _out, err = finish(tiny)
    assert code == 0, err
    assert summary(tiny)["arms"][1]["kept"]["share"] == 0


def test_a_drafter_that_drafts_nothing_is_an_error(tiny: Rig, fake: Fake) -> None:
    fake(fault="no-drafts")
    code, _out, err = finish(tiny)
    assert code == 1
    assert "the server drafted nothing" in err
    assert_nothing_runs(tiny)


def test_the_order_of_arms_rotates(tiny: Rig) -> None:
    plan = speed.plan(tiny)
    blocks = [(turn.name, arm.name) for turn, arm in plan.blocks()]
    orders = [
        [arm for turn, arm in blocks if turn == name]
        for name in ("greedy-1", "greedy-2", "greedy-3", "greedy-4", "sampled-1", "drift")
    ]
    assert orders == [
        ["none", "n=1", "n=2", "n=3"],
        ["n=3", "n=2", "n=1", "none"],
        ["n=1", "n=2", "n=3", "none"],
        ["none", "n=3", "n=2", "n=1"],
        ["n=2", "n=3", "none", "n=1"],
        ["none"],
    ]
    assert [cell.name for cell in plan.cells] == [
        "code",
        "advice",
        "story",
        "explanation",
        "list",
        "summary",
    ]
    assert {cell.bodies[0]["max_tokens"] for cell in plan.cells} == {256}
    assert all(cell.bodies[0]["cache_prompt"] is False for cell in plan.cells)


def test_draft_types_become_arms(tiny: Rig) -> None:
    rig = tiny.variant({"SPEED_SPEC_TYPES": "draft-mtp,draft-mtp+ngram-mod,ngram-simple"})
    names = [arm.name for arm in arms.arms(rig)]
    assert names == [
        "none",
        "draft-mtp n=1",
        "draft-mtp n=2",
        "draft-mtp n=3",
        "draft-mtp+ngram-mod n=1",
        "draft-mtp+ngram-mod n=2",
        "draft-mtp+ngram-mod n=3",
        "ngram-simple",
    ]


def test_without_a_drafter_there_is_nothing_to_compare(tiny: Rig) -> None:
    with pytest.raises(RigError, match="nothing to compare"):
        arms.arms(tiny.variant({"SPEC_DRAFT_MODEL": ""}))
