import hashlib
import json
import os
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from common.errors import RigError
from common.kinds.accuracy.outcomes import StoredReply
from common.kinds.accuracy.test import PROMPTS
from common.kinds.accuracy.tests.gsm8k import (
    Question,
    Score,
    keep,
    messages,
    read,
    score,
    verdict,
)

# Reply, the last marked number, the last number; None is no number.
SHAPES: list[tuple[str, str | None, str | None]] = [
    # the form that is asked for
    ("6 * 7 = 42\n#### 42", "42", "42"),
    ("#### 42", "42", "42"),
    ("####42", "42", "42"),
    ("#### 42\n", "42", "42"),
    ("####\n42", "42", "42"),
    ("####\n\n  42  ", "42", "42"),
    ("##### 42", "42", "42"),
    ("#### 42.", "42", "42"),
    ("#### 42.00", "42", "42"),
    ("#### 0", "0", "0"),
    ("#### 007", "7", "7"),
    ("#### <42>", "42", "42"),
    ("#### = 42", "42", "42"),
    ("#### Answer: 42", "42", "42"),
    # marker repeated, in the wrong place, or without a number
    ("#### 41\nNo, wait.\n#### 42", "42", "42"),
    ("#### 42\nThat took 3 steps.", "42", "3"),
    ("#### 42\n####", "42", "42"),
    ("#### 42 ####", "42", "42"),
    ("**#### 42 ####**", "42", "42"),
    ("####42####", "42", "42"),
    ("#### 42 ####\nThat took 3 steps.", "42", "3"),
    ("#### 41 ####\n#### 42 ####\n\n####\n", "42", "42"),
    ("#### #### 42", "42", "42"),
    ("The sum is 42\n#### <number>", None, "42"),
    ("#### unknown\n42", None, "42"),
    ("#### Step 1\nAdd them.\n#### Step 2\nThe total is 42.", "2", "42"),
    ("### 42", None, "42"),
    ("# # # # 42", None, "42"),
    ("#### 42 (rounded from 41.6)", "42", "41.6"),
    ("#### 6 * 7 = 42", "6", "42"),
    # commas and decimals
    ("#### 1,234", "1234", "1234"),
    ("#### 1,234,567", "1234567", "1234567"),
    ("#### 1,234.50", "1234.5", "1234.5"),
    ("#### 70,000.", "70000", "70000"),
    ("#### 3.14", "3.14", "3.14"),
    ("#### .5", "0.5", "0.5"),
    ("We have 1, 2 and 3", None, "3"),
    ("They are 1,2,3", None, "3"),
    ("#### 1{,}234", "1234", "1234"),
    ("#### 1\u202f234", "1234", "1234"),
    ("#### 1e3", "1000", "1000"),
    ("#### 1'234", "1234", "1234"),
    ("#### 1,\u2009000", "1000", "1000"),
    ("#### \u20b91,00,000", "100000", "100000"),
    # money, percent, units
    ("#### $42", "42", "42"),
    ("#### $ 42", "42", "42"),
    ("#### $1,234.50", "1234.5", "1234.5"),
    ("#### \\$42", "42", "42"),
    ("#### US$42", "42", "42"),
    ("#### 42\u20ac", "42", "42"),
    ("#### \u00a342", "42", "42"),
    ("#### 42 USD", "42", "42"),
    ("#### Rs. 42", "42", "42"),
    ("#### R150", "150", "150"),
    ("#### P100", "100", "100"),
    ("#### Php100", "100", "100"),
    ("#### Ksh200", "200", "200"),
    ("#### CHF18", "18", "18"),
    ("The answer is18", None, "18"),
    ("#### approximately18", "18", "18"),
    ("#### 42 cents", "42", "42"),
    ("#### 42%", "42", "42"),
    ("#### 42\\%", "42", "42"),
    ("#### 42km", "42", "42"),
    ("#### 42 m^2", "42", "42"),
    ("#### 42 m\u00b2", "42", "42"),
    ("#### 42\u00b0", "42", "42"),
    ("#### 42 apples per day", "42", "42"),
    # signs
    ("#### -42", "-42", "-42"),
    ("#### \u221242", "-42", "-42"),
    ("#### -$42", "-42", "-42"),
    ("#### $-42", "-42", "-42"),
    ("#### +42", "42", "42"),
    ("50-8", None, "8"),
    ("50 - 8 = 42", None, "42"),
    ("between 40-42", None, "42"),
    ("a 42-year-old", None, "42"),
    ("- 42 apples", None, "42"),
    # fractions
    ("#### 3/4", "0.75", "0.75"),
    ("#### -3/4", "-0.75", "-0.75"),
    ("#### 84/2", "42", "42"),
    ("#### 1 1/2", "1.5", "1.5"),
    ("#### 1\u00bd", "1.5", "1.5"),
    ("#### \u00be", "0.75", "0.75"),
    ("#### \\frac{3}{4}", "0.75", "0.75"),
    ("#### $\\dfrac{3}{4}$", "0.75", "0.75"),
    ("84 / 2 = 42", None, "42"),
    ("#### 3/0", "3", "0"),
    # markup
    ("#### **42**", "42", "42"),
    ("**#### 42**", "42", "42"),
    ("#### *42*", "42", "42"),
    ("#### __42__", "42", "42"),
    ("#### `42`", "42", "42"),
    ("#### **$1,234.50**", "1234.5", "1234.5"),
    ("#### \\boxed{42}", "42", "42"),
    ("#### $\\boxed{42}$", "42", "42"),
    ("#### $\\boxed{-42}$", "-42", "-42"),
    ("#### $42$", "42", "42"),
    ("#### \\(42\\)", "42", "42"),
    ("#### \\text{total} = 42", "42", "42"),
    ("\\boxed{42\\text{ dollars}}", None, "42"),
    ("The answer is **42**.", None, "42"),
    ("x \\approx42", None, "42"),
    ("| total | 42 |", None, "42"),
    ('{"answer": 42}', None, "42"),
    # words around the number, and nothing at all
    ("The answer is 42!", None, "42"),
    ("It costs $42, she said.", None, "42"),
    ("Let x2 be the price. Then x1 = 42 and so is x2", None, "42"),
    ("forty-two", None, None),
    ("", None, None),
    ("####", None, None),
    ("I cannot tell.", None, None),
]


@pytest.mark.parametrize(("reply", "marked", "last"), SHAPES)
def test_score_of_a_reply_shape(reply: str, marked: str | None, last: str | None) -> None:
    expected = Score(
        last_number=None if last is None else Fraction(last),
        last_marked=None if marked is None else Fraction(marked),
    )
    assert score(reply) == expected


def test_the_table_has_enough_different_shapes() -> None:
    assert len({reply for reply, _, _ in SHAPES}) >= 60


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_read_reads_questions_in_order(tmp_path: Path) -> None:
    path = write(
        tmp_path / "test.jsonl",
        {"question": "One\u2028two?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"},
        {"question": "Debt?", "answer": "#### -1,200"},
    )
    questions = read(path, hashlib.sha256(path.read_bytes()).hexdigest())
    assert [(q.id, q.text, q.answer, q.target) for q in questions] == [
        ("gsm8k_0", "One\u2028two?", Fraction(2), "2"),
        ("gsm8k_1", "Debt?", Fraction(-1200), "-1200"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "line 1: expected a JSON object"),
        ('["question"]', "line 1: expected a JSON object"),
        ('{"question": "q"}', "line 1: expected a JSON object"),
        ('{"question": "q", "answer": "none"}', "line 1: the answer has no number"),
        ('{"question": "q", "answer": 3}', "line 1: expected a JSON object"),
    ],
)
def test_read_names_a_bad_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(RigError, match=message):
        read(path, None)


def test_read_refuses_another_file(tmp_path: Path) -> None:
    path = write(tmp_path / "test.jsonl", {"question": "q", "answer": "#### 1"})
    with pytest.raises(RigError, match="not the GSM8K test file: SHA-256"):
        read(path)
    with pytest.raises(RigError, match="cannot read the GSM8K test file"):
        read(tmp_path / "absent.jsonl")


def test_the_prompt_asks_for_the_form_that_is_read_after_the_mark() -> None:
    template = yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))["gsm8k"]
    question = Question("gsm8k_0", "How many {braces} are 6 * 7?", Fraction(42), "42")
    (message,) = messages(question, template)
    assert message["role"] == "user"
    assert message["content"].startswith("How many {braces} are 6 * 7?\n\n")
    assert "\n#### <number>\n" in message["content"]
    # A reply that only repeats the prompt has no answer.
    assert score(message["content"]).last_marked is None


@pytest.mark.parametrize("template", ["Solve it.", "{question} {question}"])
def test_a_prompt_without_one_place_for_the_question_is_refused(template: str) -> None:
    with pytest.raises(RigError, match=r"must hold \{question\} once"):
        messages(Question("gsm8k_0", "q", Fraction(1), "1"), template)


# Read here, since no setting of the caller's reaches a test.
GSM8K = os.environ.get("GSM8K_PATH", "")


@pytest.mark.skipif(not GSM8K, reason="GSM8K_PATH names no test file")
def test_every_published_solution_scores_right_by_every_rule() -> None:
    path = Path(GSM8K)
    questions = read(path)
    assert len(questions) == 1319
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    for question, row in zip(questions, rows, strict=True):
        # GSM8K writes its answers as plain integers, some with commas: read them without us.
        number = int(row["answer"].split("#### ")[1].replace(",", ""))
        assert score(row["answer"]) == Score(Fraction(number), Fraction(number))
        told = verdict(keep(question), StoredReply(row["answer"]))
        assert list(told.right.values()) == [True] * 4
        assert question.answer == number
        assert question.text == row["question"]
