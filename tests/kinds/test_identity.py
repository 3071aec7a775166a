"""make identity: where replies part, on scripted replies and on the known-answer pair."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from common import kinds, report
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.host import card
from common.kinds.identity import plan as identity
from common.kinds.identity import summary as identity_summary
from common.measure.plan import Plan
from common.measure.texts import Tokenizer
from common.rig import Rig
from scripts import _measuring, measure
from tests.conftest import Run

Fake = Callable[..., Engine]


class Letters(Tokenizer):
    """Counts every character as a token."""

    def count(self, text: str) -> int:
        return len(text)


def plan(rig: Rig, cells: int) -> Plan:
    whole = identity.plan(rig.variant({"SPEED_N_MAX": "2"}), Letters(""))
    return replace(whole, cells=whole.cells[:cells])


def summary(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / report.SUMMARY).read_text()))


def test_six_speed_prompts_and_three_of_2000_tokens(tiny: Rig) -> None:
    cells = identity.plan(tiny, Letters("")).cells
    texts = [str(cell.bodies[0]["messages"][0]["content"]) for cell in cells]
    assert len(texts) == len(set(texts)) == 9
    assert [len(text.rpartition("\n\n")[0]) for text in texts[6:]] == [2000] * 3
    assert all(cell.bodies[0]["cache_prompt"] is False for cell in cells)
    blocks = [(turn.name, arm.name) for turn, arm in identity.plan(tiny, Letters("")).blocks()]
    assert blocks == [
        ("greedy", "none"),
        ("greedy", "n=1"),
        ("greedy", "n=2"),
        ("greedy", "n=3"),
        ("control", "none"),
    ]


@pytest.mark.parametrize("kind", ["identity", "accuracy"])
def test_quick_is_refused_in_a_line_before_anything_is_fetched(
    kind: str, tiny: Rig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        pytest.fail("something was fetched or made")

    monkeypatch.setattr(_measuring, "prepare", never)
    monkeypatch.setattr(requests, "get", never)
    monkeypatch.setattr(card, "find", never)
    monkeypatch.setenv("QUICK", "1")
    code, out, err = run(measure.body, tiny, kind)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {kind} has no quick form; leave QUICK=1 out")
    assert err.count("\n") == 1
    assert ("ACCURACY_LIMIT=50" in err) == (kind == "accuracy")
    assert not tiny.runs_folder.exists()


def reply(*texts: str, end: str = "stop", tops: Any = None) -> Any:
    pieces = []
    for index, text in enumerate(texts):
        top = (tops or {}).get(index)
        piece: dict[str, Any] = {"text": text, "top": top}
        if top:
            piece |= {"id": top[0][0], "logprob": top[0][2]}
        pieces.append(piece)
    return {"content": "".join(texts), "reasoning": "", "finish_reason": end, "pieces": pieces}


def test_where_two_replies_part() -> None:
    top = {1: [[5, " cat", -0.70], [6, " dog", -0.75], [1, "", -3.0]]}
    base = reply("A", " cat", " sat", tops=top)
    assert identity_summary.compare(base, reply("A", " cat", " sat")) is None
    near = identity_summary.compare(base, reply("A", " dog", " sat"))
    assert near == {
        "token": 1,
        "after": "A",
        "text": " cat",
        "other_text": " dog",
        "gap": 0.05,
        "gap_is_lower_bound": False,
        "near_tie": True,
    }
    end = identity_summary.compare(base, reply("A"))
    assert end is not None
    assert (end["other_text"], end["gap"], end["near_tie"]) == (None, 2.3, False)
    far = identity_summary.compare(base, reply("A", " horse"))
    assert far is not None
    assert (far["gap"], far["gap_is_lower_bound"], far["near_tie"]) == (2.3, True, False)
    longer = identity_summary.compare(reply("A"), reply("A", " cat"))
    assert longer is not None
    assert (longer["text"], longer["gap"], longer["near_tie"]) == (None, None, None)
    cut = identity_summary.compare(base, reply("A", " cat", " sat", end="length"))
    assert cut is not None
    assert cut["token"] == 3


def test_the_report_names_the_token_and_the_gap(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    deltas = [{"content": "Yes"}, {"content": " it | is"}]
    other = [{"content": "Yes"}, {"content": " no"}]
    chances = [None, [[7, " it | is", -0.7], [8, " no", -0.72]]]
    replies = [
        {"when": "library", "drafting": False, "deltas": deltas, "logprobs": chances},
        {"when": "library", "drafting": True, "deltas": other, "logprobs": [None, None]},
    ]
    path = tmp_path / "replies.json"
    path.write_text(json.dumps(replies))
    fake(replies=str(path))
    out = tmp_path / "run"
    _measuring.measure(tiny, plan(tiny, 2), out)
    found = summary(out)
    control, two = found["arms"]
    assert (control["equal"], control["of"], control["control"]) == (2, 2, True)
    assert (two["equal"], two["of"], two["near_ties"]) == (1, 2, 1)
    (difference,) = found["differences"]
    assert (difference["cell"], difference["token"], difference["gap"]) == ("code", 1, 0.02)
    text = (out / report.REPORT).read_text()
    assert "1 of 2 greedy replies with a drafter are the same as without; 1 of the 1 others" in text
    assert "` it \\| is` | ` no`" in text
    before = {name: (out / name).read_bytes() for name in (report.REPORT, report.SUMMARY)}
    report.write(out)
    assert {name: (out / name).read_bytes() for name in before} == before
    with pytest.raises(RigError, match="not as its schema says"):
        kinds.of("identity").check({**found, "note": 1})


@pytest.mark.engine
def test_the_known_answer_is_the_same_with_and_without_drafter(
    tiny: Rig, real_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_SERVER", str(real_engine.server))
    out = tmp_path / "run"
    _measuring.measure(tiny, plan(tiny, 2), out)
    found = summary(out)
    assert [(arm["equal"], arm["of"]) for arm in found["arms"]] == [(2, 2), (2, 2)]
    assert found["known_answer"] == {"equal": 6, "of": 6}
    assert found["arms"][1]["kept"]["drafted"] > 0
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    pieces = samples[0]["samples"][0]["pieces"]
    assert len(pieces) == 256
    assert all(len(piece["top"]) == identity.CANDIDATES for piece in pieces)
