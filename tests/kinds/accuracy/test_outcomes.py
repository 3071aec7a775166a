from typing import Any

import pytest

from common.kinds.accuracy.outcomes import Outcome, StoredReply, classify, read_arguments

TOOLS = ("shop_total", "shop.total")


def call(arguments: object = '{"x": 1}') -> dict[str, Any]:
    return {"type": "function", "function": {"name": "shop_total", "arguments": arguments}}


def text(content: str, finish_reason: str = "stop") -> StoredReply:
    return StoredReply(content=content, finish_reason=finish_reason)


def calls(*made: dict[str, Any], finish_reason: str = "tool_calls") -> StoredReply:
    return StoredReply(tool_calls=made, finish_reason=finish_reason)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (text("6 * 7\n#### 42"), Outcome.ANSWERED),
        (text("I cannot see a shortcut, so I add.\n#### 42"), Outcome.ANSWERED),
        (text("He said sorry 3 times."), Outcome.ANSWERED),
        (text("So the shop owes 4. I cannot go on."), Outcome.ANSWERED),
        (
            StoredReply(content="42", reasoning_content="Hm.", finish_reason="stop"),
            Outcome.ANSWERED,
        ),
        (StoredReply(content="42", tool_calls=[call(), call()]), Outcome.ANSWERED),
        (text("6 * 7 = 4", "length"), Outcome.TRUNCATED),
        (text("I'm sorry, but", "length"), Outcome.TRUNCATED),
        (text("", "length"), Outcome.TRUNCATED),
        (text(""), Outcome.EMPTY),
        (text(" \n\t"), Outcome.EMPTY),
        (StoredReply(), Outcome.EMPTY),
        (StoredReply(reasoning_content=" \n"), Outcome.EMPTY),
        (calls(call()), Outcome.EMPTY),  # nothing was offered to call
        (text("I'm sorry, but I can't help with that."), Outcome.REFUSAL),
        (text("I\u2019m unable to answer."), Outcome.REFUSAL),
        (text("**Sorry**, no."), Outcome.REFUSAL),
        (text("I'm sorry."), Outcome.REFUSAL),
        (text("Unfortunately, I do not know."), Outcome.REFUSAL),
        (text("I apologize, but I am unable to do this."), Outcome.REFUSAL),
        (text("I don't know."), Outcome.REFUSAL),
        (text("Sorry, Tom pays 18 dollars and cannot pay more."), Outcome.ANSWERED),
        (text("Unfortunately 2 broke, so 20 - 2 = 18"), Outcome.ANSWERED),
        (text("I can't wait! It is **18**"), Outcome.ANSWERED),
        (text("As an AI language model, I do not count ducks."), Outcome.REFUSAL),
        (text("I cannot answer this question.\n####"), Outcome.REFUSAL),
        (StoredReply(reasoning_content="Hm.", finish_reason="stop"), Outcome.THINKING_ONLY),
        (StoredReply(reasoning_content="Hm", finish_reason="length"), Outcome.THINKING_ONLY),
        (StoredReply(content="42", error="connection reset"), Outcome.FAILED),
        (StoredReply(error=""), Outcome.FAILED),
    ],
)
def test_outcome_of_a_text(reply: StoredReply, outcome: Outcome) -> None:
    assert classify(reply) is outcome


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (calls(call()), Outcome.ANSWERED),
        (calls(call("{}")), Outcome.ANSWERED),
        (StoredReply(content="I can't wait!", tool_calls=[call()]), Outcome.ANSWERED),
        (StoredReply(reasoning_content="Hm.", tool_calls=[call()]), Outcome.ANSWERED),
        (calls(call('{"x": 1'), finish_reason="length"), Outcome.TRUNCATED),
        (calls(call('{"x": 1')), Outcome.INVALID_TOOL_JSON),
        (calls(call("[1]")), Outcome.INVALID_TOOL_JSON),
        (calls(call("")), Outcome.INVALID_TOOL_JSON),
        (calls(call(None)), Outcome.INVALID_TOOL_JSON),
        (calls({"type": "function"}), Outcome.INVALID_TOOL_JSON),
        (calls(call(), call()), Outcome.SEVERAL_CALLS),
        (calls(call("{"), call()), Outcome.SEVERAL_CALLS),
        (text("shop_total(x=1)"), Outcome.CALL_AS_TEXT),
        (text("I would use `shop.total(1)` here."), Outcome.CALL_AS_TEXT),
        (text('```json\n{"name": "shop_total", "arguments": {"x": 1}}\n```'), Outcome.CALL_AS_TEXT),
        (text("<|tool_call>call:shop_total{x:1}<tool_call|>"), Outcome.CALL_AS_TEXT),
        (text("<tool_call>\n{}"), Outcome.CALL_AS_TEXT),
        (text("call:shop_total{x:1}"), Outcome.CALL_AS_TEXT),
        (text("I'm sorry, shop_total (and the rest) cannot do it."), Outcome.REFUSAL),
        (text("Which shop do you mean?"), Outcome.NO_CALL),
        (text("The tool shop_total adds."), Outcome.NO_CALL),
        (text("my_shop_total(1)"), Outcome.NO_CALL),
        (text('{"name": "bread"}'), Outcome.NO_CALL),
        (text(""), Outcome.EMPTY),
        (StoredReply(reasoning_content="shop_total(1)"), Outcome.THINKING_ONLY),
        (StoredReply(error="HTTP 500"), Outcome.FAILED),
    ],
)
def test_outcome_where_a_call_was_asked_for(reply: StoredReply, outcome: Outcome) -> None:
    assert classify(reply, TOOLS) is outcome


def test_names_in_a_report_are_the_values() -> None:
    assert [outcome.value for outcome in Outcome] == [
        "answered",
        "truncated",
        "empty",
        "refusal",
        "thinking_only",
        "invalid_tool_json",
        "several_calls",
        "call_as_text",
        "no_call",
        "failed",
    ]


def test_arguments_are_read_or_absent() -> None:
    assert read_arguments(call('{"x": [1, 2.0]}')) == {"x": [1, 2.0]}
    assert read_arguments(call("[" * 100_000)) is None
    assert read_arguments({"function": None}) is None
