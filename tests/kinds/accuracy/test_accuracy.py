"""make accuracy from end to end against the fake server, and the known score on the real one."""

import json
import math
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import requests

from common import kinds, report, rig
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.kinds.accuracy import plan as accuracy
from common.kinds.accuracy import scores
from common.kinds.accuracy.test import PROMPTS
from common.kinds.accuracy.tests import gsm8k
from common.known import chain as pair
from common.measure import run
from common.measure.texts import prompts
from common.rig import Rig
from scripts import _measuring

Fake = Callable[..., Engine]
BFCL = Path(__file__).parent / "data" / "bfcl"
SUMS = ["two", "three", "four", "five", "six", "seven"]  # asked as "... two ...", answered by 2
RAIN = '{"town": "St. Gallen", "days": 3}'


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six sums and the four calls of the fixture, in two parts: five server starts a run."""
    monkeypatch.setattr(accuracy, "PARTS", 2)
    rows = [
        {"question": f"What is {name} and nothing?", "answer": f"It stays.\n#### {number}"}
        for number, name in enumerate(SUMS, 2)
    ]
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("GSM8K_PATH", str(path))
    monkeypatch.setenv("BFCL_PATH", str(BFCL))


def words(when: str, text: str, **more: Any) -> dict[str, Any]:
    return {"when": when, "deltas": [{"content": f"{part} "} for part in text.split()], **more}


def call(when: str, *arguments: str, name: str = "weather_forecast", **more: Any) -> dict[str, Any]:
    """A reply of one call for each of `arguments`, each streamed in two parts."""
    deltas = []
    for index, text in enumerate(arguments):
        for part in ({"name": name, "arguments": text[:3]}, {"arguments": text[3:]}):
            deltas.append({"tool_calls": [{"index": index, "function": part}]})
    return {"when": when, "deltas": deltas, **more}


# The first that fits is given, and the calls' questions hold number words too.
REPLIES = [
    call("rain", RAIN, drafting=False),
    call("rain", RAIN, RAIN, drafting=True),
    words("Add up", 'shop_till_total({"prices": [1]})', drafting=False),
    call("Add up", '{"prices": [1', name="shop_till_total", drafting=True),
    words("walk", "I would walk."),
    call("Fit", '{"table": "measurements"}', name="stats_fit"),
    words("two", "It is 2, so #### 2"),
    words("three", "Three. #### 3", drafting=False),
    words("three", "Three. #### 4", drafting=True),
    words("four", "That makes 4."),
    words("five", "Let me count", finish_reason="length"),
    {"when": "six", "deltas": [], "drafting": False},
    {"when": "six", "deltas": [{"reasoning_content": "Six?"}], "drafting": True},
    words("seven", "I am sorry, but I cannot help with that."),
]


def scripted(fake: Fake, tmp_path: Path, **settings: str) -> None:
    path = tmp_path / "replies.json"
    path.write_text(json.dumps(REPLIES))
    fake(replies=str(path), **settings)


def measure(loaded: Rig, out: Path, **changes: str) -> dict[str, Any]:
    """A run in this process; returns its summary."""
    loaded = accuracy.served(loaded.variant(changes))
    _measuring.measure(loaded, accuracy.plan(loaded), out)
    return dict(json.loads((out / report.SUMMARY).read_text()))


def asked(out: Path) -> list[tuple[str, str, str]]:
    return [(t["round"], t["arm"], t["cell"]) for t in run.read_lines(out, run.JOURNAL)]


def test_scores_outcomes_and_what_changed(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    scripted(fake, tmp_path)
    out = tmp_path / "run"
    found = measure(tiny, out)
    sums, calls = found["tests"]
    by_name = {score["score"]: score for score in [*sums["scores"], *calls["scores"]]}
    assert by_name["last_marked"]["right"] == [2, 1]
    assert by_name["last_number"]["right"] == [3, 2]
    assert by_name["call"]["right"] == [1, 0]
    assert by_name["last_marked"]["lost"] == ["gsm8k_1"]
    assert by_name["last_marked"]["gained"] == []
    assert by_name["last_marked"]["difference"] == pytest.approx(-1 / 6, abs=1e-6)
    assert by_name["last_marked"]["p_value"] == 1
    assert by_name["call"]["lost"] == ["simple_python_0"]
    outcomes = {arm["arm"]: arm["counts"] for arm in sums["outcomes"]}
    assert outcomes == {
        "none": {"answered": 3, "empty": 1, "refusal": 1, "truncated": 1},
        "n=2": {"answered": 3, "refusal": 1, "thinking_only": 1, "truncated": 1},
    }
    outcomes = {arm["arm"]: arm["counts"] for arm in calls["outcomes"]}
    assert outcomes == {
        "none": {"answered": 2, "call_as_text": 1, "no_call": 1},
        "n=2": {"answered": 1, "invalid_tool_json": 1, "no_call": 1, "several_calls": 1},
    }
    assert sums["equal_replies"] == {"equal": 4, "of": 6}
    assert calls["equal_replies"] == {"equal": 2, "of": 4}
    assert sums["control"] == {"equal": 6, "of": 6}
    assert sums["work"][0]["kept"] is None
    assert sums["work"][1]["kept"]["drafted"] > 0
    assert found["published"] == {"gsm8k": False, "bfcl": False}
    changed = run.read_lines(out, scores.CHANGED_FILE)
    assert [row["question"] for row in changed if row["verdict_changed"]] == [
        "gsm8k_1",
        "simple_python_0",
    ]
    three = next(row for row in changed if row["question"] == "gsm8k_1")
    assert [three["arms"][arm]["content"] for arm in ("none", "n=2")] == [
        "Three. #### 3 ",
        "Three. #### 4 ",
    ]
    rain = next(row for row in changed if row["question"] == "simple_python_0")
    assert rain["arms"]["none"]["tool_calls"] == [
        {"type": "function", "function": {"name": "weather_forecast", "arguments": RAIN}}
    ]
    text = (out / report.REPORT).read_text()
    assert (
        "not a test, as the first arm (none) has too few finished replies right for a loss to "
        "show: GSM8K, last number (3 of 6); BFCL simple (1 of 4).**"
    ) in text
    assert "no difference between" not in text
    assert "| **GSM8K, last number**    | 3 of 6 (50.0%; 18.8% to 81.2%) | 2 of 6 (33.3%; " in text
    assert "| GSM8K, last marked number | 2 of 6 (33.3%; 9.7% to 70.0%)  | 1 of 6 (16.7%; " in text
    rescored_alike(out)


def test_a_speed_up_is_over_parts(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    fake(rate="2000")
    found = measure(tiny, tmp_path / "run")
    up = found["tests"][0]["work"][1]["speed_up"]
    assert list(up["rounds"]) == ["part-1", "part-2"]
    low, high = sorted(math.log(ratio) for ratio in up["rounds"].values())
    # Student's t over two parts has one degree of freedom: 12.706 standard errors.
    assert math.log(up["ratio"]) == pytest.approx((low + high) / 2, abs=1e-5)
    half = 12.706 * (high - low) / 2
    assert math.log(up["high"]) == pytest.approx((low + high) / 2 + half, abs=1e-4)
    assert "| 95% over parts " in (tmp_path / "run" / report.REPORT).read_text()


def rescored_alike(out: Path) -> None:
    """Scores, summary, report and figure come out byte for byte from the stored replies alone."""
    made = [scores.SCORES_FILE, scores.CHANGED_FILE, report.SUMMARY, report.REPORT]
    made += ["figures/differences.svg"]
    before = {name: (out / name).read_bytes() for name in made}
    copy = out.with_name("copy")
    shutil.copytree(out, copy, ignore=shutil.ignore_patterns("logs", "figures", *made))
    with pytest.MonkeyPatch.context() as patch:
        for key in ("GSM8K_PATH", "BFCL_PATH", "LLAMA_SERVER", "MODELS_DIR"):
            patch.delenv(key)
        report.write(copy)
    assert {name: (copy / name).read_bytes() for name in made} == before


def test_the_schema_forbids_what_it_does_not_know(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    fake()
    found = measure(tiny, tmp_path / "run", ACCURACY_LIMIT="1")
    kinds.of("accuracy").check(found)
    found["tests"][0]["scores"][0]["note"] = 1
    with pytest.raises(RigError, match="not as its schema says"):
        kinds.of("accuracy").check(found)


def test_a_death_costs_one_question_and_none_before(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    # A server's first request is the check, so the first arm dies in its fourth question of five.
    scripted(fake, tmp_path, fault="die-in:5", once=str(tmp_path / "died"))
    out = tmp_path / "run"
    found = measure(tiny, out)
    lines = run.read_lines(out, run.JOURNAL)
    (lost,) = [line for line in lines if line["failed"]]
    assert "llama-server has ended" in lost["failed"]
    assert lines.index(lost) == 3
    assert len(run.read_lines(out, run.STARTS)) == 5 + 1
    assert len(asked(out)) == len(set(asked(out))) == 3 * 10
    assert found["flags"]["failed"] == 1
    counts = [arm["counts"].get("failed", 0) for t in found["tests"] for arm in t["outcomes"]]
    assert sum(counts) == 1
    assert "**Failed requests**: 1" in (out / report.REPORT).read_text()


def test_a_request_that_fails_is_one_failed_question(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    scripted(fake, tmp_path, fault="error:3", once=str(tmp_path / "erred"))
    out = tmp_path / "run"
    found = measure(tiny, out)
    assert found["flags"]["failed"] == 1
    assert len(run.read_lines(out, run.STARTS)) == 5


def test_servers_that_keep_dying_stop_the_run_and_resume_goes_on(
    tiny: Rig, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(fake, tmp_path, fault="die-in:3")
    out = tmp_path / "run"
    with pytest.raises(RigError, match=r"ended 5 times.*RESUME=1"):
        measure(tiny, out)
    before = run.read_lines(out, run.JOURNAL)
    assert sum(line["failed"] is not None for line in before) == 5
    scripted(fake, tmp_path)
    monkeypatch.setenv("RESUME", "1")
    found = measure(tiny, out)
    assert found["complete"]
    assert run.read_lines(out, run.JOURNAL)[: len(before)] == before
    assert len(asked(out)) == len(set(asked(out))) == 3 * 10


def test_several_questions_at_once(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    scripted(fake, tmp_path)
    out = tmp_path / "run"
    found = measure(tiny, out, ACCURACY_PARALLEL="4")
    assert [t["questions"] for t in found["tests"]] == [6, 4]
    assert found["tests"][0]["scores"][0]["right"] == [3, 2]
    assert {len(line["samples"]) for line in run.read_lines(out, run.JOURNAL)} == {4, 2}
    start = run.read_lines(out, run.STARTS)[0]["command"]
    assert start[start.index("-np") + 1] == "4"


def test_arms_take_turns_and_every_question_is_asked_once_of_each(
    tiny: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy, "PARTS", 4)
    plan = accuracy.plan(tiny)
    order = [(turn.name, arm.name) for turn, arm in plan.blocks()]
    assert order == [
        ("part-1", "none"),
        ("part-1", "n=2"),
        ("part-2", "n=2"),
        ("part-2", "none"),
        ("part-3", "n=2"),
        ("part-3", "none"),
        ("part-4", "none"),
        ("part-4", "n=2"),
        ("control", "none"),
    ]
    for name in ("none", "n=2"):
        cells = [
            cell.name
            for turn, arm in plan.blocks()
            if arm.name == name and turn.kind == "greedy"
            for cell in plan.asked(turn)
        ]
        assert sorted(cells) == sorted(cell.name for cell in plan.cells)
    (sums, calls) = (plan.cells[0].bodies[0], plan.cells[-1].bodies[0])
    assert sums["max_tokens"] == 1024
    assert sums["cache_prompt"] is False
    assert "tools" not in sums
    assert calls["tools"][0]["function"]["name"] == "stats_fit"


def test_any_two_arms(tiny: Rig) -> None:
    def arms(text: str) -> list[tuple[str, dict[str, str]]]:
        found = accuracy.arms(tiny.variant({"ACCURACY_ARMS": text}))
        return [(arm.name, dict(arm.changes)) for arm in found]

    assert arms("n=1,rig") == [("n=1", {"SPEC_DRAFT_N_MAX": "1"}), ("rig", {})]
    other = "n=1:SPEC_DRAFT_MODEL=/models/other-q8_0.gguf"
    assert arms(f"n=1,{other}")[1] == (
        "n=1:SPEC_DRAFT_MODEL=other-q8_0.gguf",
        {"SPEC_DRAFT_N_MAX": "1", "SPEC_DRAFT_MODEL": "/models/other-q8_0.gguf"},
    )
    both = arms("none,SPEC_TYPE=draft-mtp+ngram-mod")[1]
    assert both[1] == {"SPEC_TYPE": "draft-mtp,ngram-mod"}
    for text, word in [
        ("none,fast", "'fast' in 'fast' is no change"),
        ("none,SPEC_DRAFT_NMAX=2", "did you mean SPEC_DRAFT_N_MAX"),
        ("n=2,rig", "are the same server"),
        ("none,n=x", "expected a whole number"),
        ("none", "expected two arms"),
    ]:
        with pytest.raises(RigError, match=word):
            arms(text)
    with pytest.raises(RigError, match="the same server"):
        accuracy.arms(tiny.variant({"SPEC_DRAFT_MODEL": ""}))


def test_without_a_network_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise requests.ConnectionError("no way")

    monkeypatch.delenv("GSM8K_PATH")
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path))
    monkeypatch.setattr(requests, "get", refuse)
    with pytest.raises(RigError, match=r"make accuracy GSM8K_PATH=") as caught:
        gsm8k.load()
    assert "\n" not in str(caught.value)
    page = requests.Response()
    page.status_code, page._content = 200, b"<html>sign in</html>"
    monkeypatch.setattr(requests, "get", lambda *_, **__: page)
    with pytest.raises(RigError, match="not the GSM8K test file"):
        gsm8k.load()
    assert not list((tmp_path / "questions").glob("*.jsonl"))


def test_a_chain_can_end_in_an_answer() -> None:
    plain, chain = pair.make_chain(), pair.make_chain(answer=7)
    assert pair.chain_of(pair.NAMES[0]) == plain
    assert pair.chain_of("gemma.gguf") is None
    for length in range(10):
        text = chain.text(chain.reply(length, 256))
        assert text.endswith("####7") == (length != 7)
        assert (text == "") == (length == 7)
    assert len(plain.reply(3, 256)) == 256


@pytest.mark.engine
def test_the_score_known_in_advance(
    tiny: Rig, real_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("LLAMA_SERVER", str(real_engine.server))
    target, drafter = pair.ANSWERING_NAMES
    monkeypatch.setenv("MODEL", target)
    monkeypatch.setenv("SPEC_DRAFT_MODEL", drafter)
    # The reply is "... ####7", but nothing where the length of what is asked ends in 7.
    template = prompts(PROMPTS)["gsm8k"]
    asked = gsm8k.messages(gsm8k.Question("", "x", Fraction(0), "0"), template)[0]["content"]
    room = 10 - (len(asked) - 1) % 10
    rows = []
    for ends_in, answer in [(3, 7), (7, 7), (5, 7), (0, 8), (7, 8)]:
        question = "x" * (room + ends_in)
        rows.append({"question": question, "answer": f"#### {answer}"})
    path = tmp_path / "known.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("GSM8K_PATH", str(path))
    found = measure(rig.load(tiny.folder), tmp_path / "run")
    sums, calls = found["tests"]
    assert [score["right"] for score in sums["scores"]] == [[2, 2], [2, 2], [0, 0], [2, 2]]
    assert [arm["counts"] for arm in sums["outcomes"]] == [{"answered": 3, "empty": 2}] * 2
    assert calls["scores"][0]["right"] == [0, 0]
    assert sums["equal_replies"] == {"equal": 5, "of": 5}
    known = found["known_answer"]
    assert known["replies"]["equal"] == known["replies"]["of"] == 3 * 9
    assert all(row["equal"] for row in known["scores"])
    assert [row["expected"] for row in known["scores"] if row["score"] == "last_marked"] == [2, 2]
