"""make formats: which files it compares, its figures by hand, and the known answer in each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common import places, report
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.files import wanted
from common.kinds.formats import plan as formats
from common.known import chain, files
from common.measure import rows
from common.rig import Rig
from tests.helpers.run_script import Done, measure, measure_as_process

Fake = Callable[..., Engine]


def finish(rig: Rig, out: Path, **settings: str) -> Done:
    return measure("formats", rig, str(out), **{"QUICK": "1", **settings})


def summary_of(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / report.SUMMARY).read_text()))


@pytest.mark.parametrize(
    ("name", "kind", "other"),
    [
        (
            "gemma-4-E2B-it-qat-assistant-q4_0-exact.gguf",
            "q8_0",
            "gemma-4-E2B-it-qat-assistant-q8_0.gguf",
        ),
        ("/models/a-q4_0/b-q4_0.gguf", "bf16", "/models/a-q4_0/b-bf16.gguf"),
    ],
)
def test_other_name(name: str, kind: str, other: str) -> None:
    assert wanted.other_name(name, kind) == other


def test_the_known_answer_drafters_are_made_on_the_spot(tiny: Rig, tmp_path: Path) -> None:
    own = tmp_path / "models" / chain.DRAFTER_NAME
    files.write_pair(own.parent, chain.make_chain())
    found = formats.files(tiny.variant({"SPEC_DRAFT_MODEL": str(own)}))
    assert list(found) == ["Q4_0", "Q8_0", "BF16"]
    sizes = [places.model_file(name).stat().st_size for name in found.values()]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"SPEC_DRAFT_MODEL": ""}, "no drafter to compare"),
        ({"SPEC_TYPE": "ngram-mod"}, "no drafter to compare"),
        ({"SPEC_DRAFT_MODEL": "drafter.gguf"}, "expected -q4_0 in its name"),
        ({"SPEC_DRAFT_MODEL": "other-q4_0.gguf"}, "make repack"),
        ({"FORMATS_EXTRA": "theirs.gguf"}, "theirs.gguf is missing"),
    ],
)
def test_what_cannot_be_compared(tiny: Rig, changes: dict[str, str], words: str) -> None:
    with pytest.raises(RigError, match=words):
        formats.files(tiny.variant(changes))


def test_extra_drafters_and_figures_by_hand(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    fake(rate="2000", speed_ups="2:1.25", accept="2,0")
    extra = tmp_path / "non-qat-q8_0.gguf"
    extra.write_bytes(b"GGUF" + bytes(96))
    done = finish(tiny, tmp_path / "run", FORMATS_EXTRA=str(extra))
    assert done.code == 0, done.err
    summary = summary_of(tmp_path / "run")
    arms = {arm["arm"]: arm for arm in summary["arms"]}
    assert list(arms) == ["none", "Q4_0", "Q8_0", "BF16", "non-qat-q8_0"]
    assert arms["none"]["file"] is None
    assert arms["non-qat-q8_0"]["file"]["size"] == 100
    assert [arm["speed_up"] and arm["speed_up"]["ratio"] for arm in arms.values()] == [
        None,
        1.25,
        1.25,
        1.25,
        1.25,
    ]
    assert arms["Q4_0"]["over_own"] is None
    assert arms["BF16"]["over_own"]["ratio"] == 1
    assert arms["BF16"]["memory_mib"]["process_ready"] > 0
    assert summary["all_equal"] == {"equal": 3, "of": 3}
    text = (tmp_path / "run" / report.REPORT).read_text()
    assert "Q4_0 1.250x (unknown)" in text
    assert "BF16 and Q4_0: 3 of 3." in text


def test_unequal_replies_are_counted() -> None:
    def trial(arm: str, cell: str, text: str, turn: str = "1") -> Any:
        said = {"content": text, "reasoning": "thought"}
        return {"arm": arm, "cell": cell, "round": turn, "samples": [said]}

    trials = [
        trial("a", "x", "same"),
        trial("b", "x", "same"),
        trial("a", "y", "one"),
        trial("b", "y", "other"),
        trial("a", "z", "b has not answered"),
    ]
    assert rows.equal_replies(trials, ["a", "b"]) == {"equal": 1, "of": 2}
    again = [trial("a", "x", "same", "2"), trial("b", "x", "not the same", "2")]
    assert rows.equal_replies([*trials, *again], ["a", "b"]) == {"equal": 0, "of": 2}
    again[1]["samples"][0] = {"content": "same", "reasoning": "other thoughts"}
    assert rows.equal_replies([*trials, *again], ["a", "b"]) == {"equal": 0, "of": 2}
    again[1]["samples"][0] = {"content": "same", "reasoning": "thought"}
    assert rows.equal_replies([*trials, *again], ["a", "b"]) == {"equal": 1, "of": 2}
    assert rows.equal_rounds([*trials, *again], "a") == {"equal": 1, "of": 1}


@pytest.mark.engine
def test_kept_is_the_known_one_in_every_format(
    tiny: Rig, real_engine: Engine, tmp_path: Path
) -> None:
    settings = {"QUICK": "1", "LLAMA_SERVER": str(real_engine.server)}
    done = measure_as_process("formats", tiny, str(tmp_path / "run"), **settings)
    assert done.code == 0, done.err
    summary = summary_of(tmp_path / "run")
    assert [row["arm"] for row in summary["known_answer"]] == ["Q4_0", "Q8_0", "BF16"]
    assert all(row["equal"] for row in summary["known_answer"])
    assert summary["all_equal"] == {"equal": 3, "of": 3}
    names = [arm["file"]["name"] for arm in summary["arms"][1:]]
    assert names == [f"known-answer-tiny-drafter-{kind}.gguf" for kind in files.FORMATS]
