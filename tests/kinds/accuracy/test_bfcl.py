import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from common.errors import RigError
from common.kinds.accuracy.tests import bfcl
from common.kinds.accuracy.tests.bfcl import (
    ANSWERS,
    QUESTIONS,
    Question,
    call_error,
    read,
    reply_error,
    tool,
)

FIXTURE = Path(__file__).parent / "data" / "bfcl"
PUBLISHED = pytest.mark.skipif(
    not {"BFCL_DATA", "BFCL_VERDICTS"} <= set(os.environ),
    reason="BFCL_DATA (wheel or data folder) and BFCL_VERDICTS (verdict file) name no files",
)


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def by_id(questions: list[Question]) -> dict[str, Question]:
    return {question.id: question for question in questions}


@pytest.fixture(name="questions")
def fixture_questions() -> dict[str, Question]:
    return by_id(read(FIXTURE, None))


def call(name: str, arguments: object) -> dict[str, Any]:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": written}}


@pytest.mark.parametrize("row", read_verdicts(FIXTURE / "verdicts.jsonl"))
def test_verdicts_of_the_fixture(row: dict[str, Any], questions: dict[str, Question]) -> None:
    question = questions[row["id"]]
    error = call_error(question, row["name"], row["arguments"])
    assert (error is None, error) == (row["valid"], row["error_type"])
    assert reply_error(question, [call(row["name"], row["arguments"])]) == error


@PUBLISHED
def test_every_published_verdict() -> None:
    questions = by_id(read(Path(os.environ["BFCL_DATA"])))
    assert len(questions) == 400
    rows = read_verdicts(Path(os.environ["BFCL_VERDICTS"]))
    assert len(rows) == 3037
    for row in rows:
        error = call_error(questions[row["id"]], row["name"], row["arguments"])
        # For a right call BFCL's checker leaves either nothing or this placeholder.
        placeholder = row["error_type"] == "simple_function_checker:unclear"
        error_type = None if row["valid"] and placeholder else row["error_type"]
        assert (error is None, error) == (row["valid"], error_type), row


@PUBLISHED
def test_every_published_function_becomes_a_tool() -> None:
    for question in read(Path(os.environ["BFCL_DATA"])):
        check_tool(question)


@pytest.mark.parametrize("number", range(4))
def test_function_becomes_a_tool(number: int, questions: dict[str, Question]) -> None:
    check_tool(questions[f"simple_python_{number}"])


def check_tool(question: Question) -> None:
    """The tool's schema is JSON Schema, keeps every name, and has a name OpenAI allows."""
    function = tool(question)["function"]
    described = question.function["parameters"]
    Draft202012Validator.check_schema(function["parameters"])
    assert function["parameters"]["type"] == "object"
    assert list(function["parameters"]["properties"]) == list(described["properties"])
    assert function["parameters"]["required"] == described["required"]
    assert function["name"].replace("_", "").isalnum()
    assert len(function["name"]) <= 64
    assert function["name"] == question.tool_name


def test_tool_types_and_names(questions: dict[str, Question]) -> None:
    till = tool(questions["simple_python_1"])
    assert till["type"] == "function"
    assert till["function"]["name"] == "shop_till_total"
    assert till["function"]["description"] == "Total of a till slip."
    prices = till["function"]["parameters"]["properties"]["prices"]
    assert prices == {
        "type": "array",
        "items": {"type": "number"},
        "description": "Prices in euros.",
    }
    walk = tool(questions["simple_python_2"])["function"]["parameters"]["properties"]
    assert walk["start"]["type"] == "array"
    assert walk["party"]["type"] == "object"
    assert walk["party"]["properties"]["hills"] == {"type": "boolean"}
    assert walk["stops"]["items"]["properties"] == {
        "name": {"type": "string"},
        "order": {"type": "integer"},
    }
    fit = tool(questions["simple_python_3"])["function"]["parameters"]["properties"]
    assert fit["table"]["type"] == "string"
    assert fit["grid"]["items"] == {"type": "array", "items": {"type": "integer"}}
    forecast = tool(questions["simple_python_0"])["function"]["parameters"]["properties"]
    assert forecast["metric"] == {
        "type": "boolean",
        "description": "Metric units.",
        "default": True,
    }
    assert forecast["wind"]["enum"] == ["low", "high"]


def test_parameters_named_like_schema_keywords_are_kept() -> None:
    properties = {
        "type": {"type": "float"},
        "items": {"type": "tuple", "items": {"type": "any"}},
        "optional": {"type": "dict"},
    }
    function = {
        "name": "f",
        "description": "",
        "parameters": {"type": "dict", "properties": properties, "required": []},
    }
    schema = tool(Question("q", [], function, {}))["function"]["parameters"]
    assert schema["properties"] == {
        "type": {"type": "number"},
        "items": {"type": "array", "items": {"type": "string"}},
        "optional": {"type": "object"},
    }


def test_replies_that_hold_no_single_call(questions: dict[str, Question]) -> None:
    question = questions["simple_python_0"]
    good = call("weather_forecast", {"town": "St. Gallen", "days": 3})
    assert reply_error(question, [good]) is None
    wrong_count = "simple_function_checker:wrong_count"
    assert reply_error(question, []) == wrong_count
    assert reply_error(question, [good, good]) == wrong_count
    for broken in ("", "{", "[]", "null", '"town"', "[" * 100_000):
        error = reply_error(question, [call("weather_forecast", broken)])
        assert error == "ast_decoder:decoder_failed"


def test_a_number_too_large_for_a_float_is_wrong(questions: dict[str, Question]) -> None:
    arguments = {"prices": [2.5, 4.0, 1.25], "tax": 10**400}
    error = call_error(questions["simple_python_1"], "shop_till_total", arguments)
    assert error == "type_error:simple"


def test_load_reads_the_wheel_as_it_reads_the_folder(tmp_path: Path) -> None:
    wheel = tmp_path / "data.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (QUESTIONS, ANSWERS):
            archive.write(FIXTURE / name, f"bfcl_eval/data/{name}")
    assert read(wheel, None) == read(FIXTURE, None)
    assert [question.id for question in read(wheel, None)] == [
        f"simple_python_{number}" for number in range(4)
    ]


def test_load_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="is not the one of bfcl-eval"):
        read(FIXTURE)
    with pytest.raises(RigError, match="expected the wheel"):
        read(tmp_path / "absent.whl")
    (tmp_path / "possible_answer").mkdir()
    with pytest.raises(RigError, match="cannot read"):
        read(tmp_path, None)
    lines = (FIXTURE / QUESTIONS).read_text(encoding="utf-8").splitlines(keepends=True)
    answers = (FIXTURE / ANSWERS).read_text(encoding="utf-8").splitlines(keepends=True)

    def write(questions: str, accepted: str) -> None:
        (tmp_path / QUESTIONS).write_text(questions, encoding="utf-8")
        (tmp_path / ANSWERS).write_text(accepted, encoding="utf-8")

    write(lines[0], answers[1])
    with pytest.raises(RigError, match="do not hold the same questions"):
        read(tmp_path, None)
    write(lines[0].replace("integer", "whole number"), answers[0])
    with pytest.raises(RigError, match="simple_python_0: expected one conversation"):
        read(tmp_path, None)
    write(lines[0].replace("weather.forecast", "weather.now"), answers[0])
    with pytest.raises(RigError, match="simple_python_0: expected one conversation"):
        read(tmp_path, None)
    write("<html>", answers[0])
    with pytest.raises(RigError, match="expected one JSON object a line"):
        read(tmp_path, None)


def test_what_is_kept_of_a_question_holds_no_text() -> None:
    text = {"type": "string", "description": "What it is."}
    function = {
        "name": "note",
        "description": "Write a note.",
        "parameters": {
            "type": "dict",
            "properties": {"description": text, "tags": {"type": "array", "items": text}},
            "required": ["description"],
        },
    }
    kept = bfcl.without_words(function)
    assert kept["parameters"]["properties"] == {
        "description": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    for arguments in ({"description": "a"}, {"tags": ["a"]}, {"description": 1}):
        asked, stored = (
            bfcl.Question("q", [], each, {"description": ["a"], "tags": ["", ["a"]]})
            for each in (function, kept)
        )
        assert call_error(asked, "note", arguments) == call_error(stored, "note", arguments)
