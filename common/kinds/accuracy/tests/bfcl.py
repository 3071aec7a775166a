"""BFCL simple_python: the questions, the tools they offer, and the verdict on a call.

The verdict follows the Berkeley Function-Calling Leaderboard's rules for one Python call, strange
corners included, because a score is only comparable under the same rules. Three to know: an
integer passes for a float, but not inside a list of floats; strings are compared without case,
spaces and the signs ,./-_*^ ; an empty string among a parameter's accepted values means that the
parameter may be left out.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import RigError
from common.kinds.accuracy.outcomes import read_arguments

# The wheel that carries the data (Apache-2.0). Only its data files are used.
REQUIREMENT = "bfcl-eval==2026.3.23"
QUESTIONS = "BFCL_v4_simple_python.json"
ANSWERS = "possible_answer/BFCL_v4_simple_python.json"
SHA256 = {
    QUESTIONS: "82dd63ba502eb2520c6b5d1d9a5c4b590e03ff261565175561f6228a367d1991",
    ANSWERS: "90cd5bc653690ee8e459b5b3f3fc9458606f7f3fcbf795bb51b7dc581f8c86dc",
}
_FOLDER_IN_WHEEL = "bfcl_eval/data"

# BFCL's type names: what JSON Schema calls them, and what a decoded JSON value must be. A tuple
# arrives as a list; "any" is judged as a string.
_SCHEMA_TYPES = {
    "string": "string",
    "integer": "integer",
    "float": "number",
    "boolean": "boolean",
    "array": "array",
    "tuple": "array",
    "dict": "object",
    "any": "string",
}
_PYTHON_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_IGNORED_IN_STRINGS = str.maketrans("'", '"', " ,./-_*^")


@dataclass(frozen=True)
class Question:
    """One question, the one function it offers, and the accepted values of each parameter."""

    id: str
    messages: list[dict[str, str]]
    function: dict[str, Any]
    accepted: dict[str, list[Any]]

    @property
    def name(self) -> str:
        """The function's own name, dots included."""
        return str(self.function["name"])

    @property
    def tool_name(self) -> str:
        """The name it is offered under: OpenAI's tools allow no dots, BFCL writes underscores."""
        return self.name.replace(".", "_")


@dataclass(frozen=True)
class Verdict:
    """Whether a call is right; if not, why, in BFCL's own names for errors."""

    valid: bool
    error_type: str | None = None


def load(source: Path, sha256: Mapping[str, str] | None = SHA256) -> list[Question]:
    """The questions in ``source``, in file order.

    ``source`` is the wheel, or a folder with QUESTIONS and ANSWERS as in the wheel's data folder.
    ``sha256`` is what each file must hash to; None accepts any files of the same form. Raises
    RigError for files that cannot be read, have another digest, or do not belong together.
    """
    rows, answers = (_read(source, name, sha256) for name in (QUESTIONS, ANSWERS))
    if [row.get("id") for row in rows] != [row.get("id") for row in answers]:
        raise RigError(f"{source}: {QUESTIONS} and {ANSWERS} do not hold the same questions")
    return [_question(source, row, answer) for row, answer in zip(rows, answers, strict=True)]


def _read(source: Path, name: str, sha256: Mapping[str, str] | None) -> list[dict[str, Any]]:
    try:
        if source.is_dir():
            data = (source / name).read_bytes()
        else:
            with zipfile.ZipFile(source) as wheel:
                data = wheel.read(f"{_FOLDER_IN_WHEEL}/{name}")
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise RigError(
            f"{source}: cannot read {name}: {error}; expected the wheel {REQUIREMENT} or its "
            f"folder {_FOLDER_IN_WHEEL}"
        ) from error
    found = hashlib.sha256(data).hexdigest()
    if sha256 is not None and found != sha256[name]:
        raise RigError(
            f"{source}: {name} is not the one of {REQUIREMENT}: SHA-256 is {found}, "
            f"expected {sha256[name]}"
        )
    try:
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError as error:
        raise RigError(f"{source}: {name}: expected one JSON object a line: {error}") from error


def _question(source: Path, row: dict[str, Any], answer: dict[str, Any]) -> Question:
    try:
        (messages,) = row["question"]
        (function,) = row["function"]
        (truth,) = answer["ground_truth"]
        question = Question(row["id"], messages, function, truth[function["name"]])
        tool(question)  # so that a type we do not know is found before anything is measured
    except (KeyError, TypeError, ValueError) as error:
        raise RigError(
            f"{source}: {row['id']}: expected one conversation, one function and its accepted "
            f"values ({type(error).__name__}: {error})"
        ) from error
    return question


def tool(question: Question) -> dict[str, Any]:
    """The question's function as an entry of the OpenAI ``tools`` field."""
    return {
        "type": "function",
        "function": {
            "name": question.tool_name,
            "description": question.function["description"],
            "parameters": _json_schema(question.function["parameters"]),
        },
    }


def _json_schema(described: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for key, value in described.items():
        if key == "type":
            schema[key] = _SCHEMA_TYPES[value]
        elif key == "properties":
            schema[key] = {name: _json_schema(inner) for name, inner in value.items()}
        elif key == "items":
            schema[key] = _json_schema(value)
        elif key != "optional":  # no keyword of JSON Schema; "required" already says it
            schema[key] = value
    return schema


def function_name(question: Question, tool_name: str) -> str:
    """A called tool's name mapped back to the function's own; a name not offered stays as it is."""
    return question.name if tool_name == question.tool_name else tool_name


def without_words(function: Any) -> Any:
    """The function without its descriptions: all that scoring needs, and none of BFCL's text."""
    if isinstance(function, list):
        return [without_words(part) for part in function]
    if not isinstance(function, dict):
        return function
    return {
        key: without_words(value)
        for key, value in function.items()
        if key != "description" or not isinstance(value, str)  # a parameter may have that name
    }


def check_reply(question: Question, tool_calls: Sequence[Mapping[str, Any]]) -> Verdict:
    """The verdict on the tool calls of one reply, in the form of OpenAI's chat API."""
    if len(tool_calls) != 1:
        return Verdict(False, "simple_function_checker:wrong_count")
    arguments = read_arguments(tool_calls[0])
    if arguments is None:
        return Verdict(False, "ast_decoder:decoder_failed")
    return check_call(question, tool_calls[0]["function"].get("name") or "", arguments)


def check_call(question: Question, name: str, arguments: Mapping[str, Any]) -> Verdict:
    """The verdict on a call of the tool ``name`` with decoded JSON ``arguments``.

    A right call has no error type. (BFCL's own checker leaves a placeholder in that field for some
    right calls; it means nothing.)
    """
    error = _call_error(question, name, arguments)
    return Verdict(error is None, error)


def _call_error(question: Question, name: str, arguments: Mapping[str, Any]) -> str | None:
    if name != question.tool_name:
        return "simple_function_checker:wrong_func_name"
    parameters = question.function["parameters"]
    if any(required not in arguments for required in parameters["required"]):
        return "simple_function_checker:missing_required"
    for parameter, value in arguments.items():
        if parameter not in parameters["properties"] or parameter not in question.accepted:
            return "simple_function_checker:unexpected_param"
        described = parameters["properties"][parameter]
        error = _value_error(described, value, question.accepted[parameter])
        if error is not None:
            return error
    for parameter, accepted in question.accepted.items():
        if parameter not in arguments and "" not in accepted:
            return "simple_function_checker:missing_optional"
    return None


def _value_error(described: Mapping[str, Any], value: object, accepted: list[Any]) -> str | None:
    kind = _PYTHON_TYPES[described["type"]]
    # Only arrays and tuples have their items' type checked, and only one level deep.
    item_kind = _PYTHON_TYPES[described["items"]["type"]] if kind is list else None
    accepted_kind = _first_type(accepted)
    if kind is float and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            return "type_error:simple"
    if type(value) is kind:
        if isinstance(value, list) and item_kind and not _items_fit(value, item_kind, accepted):
            return "type_error:nested" if accepted_kind is list else "type_error:simple"
    elif type(value) is not accepted_kind:
        return "type_error:simple"
    if accepted_kind is not None and accepted_kind is not kind:
        # The accepted values are of another type than described, as when they name a variable:
        # they are then compared as they stand.
        return None if value in accepted else "value_error:others"
    if type(value) is dict:
        return _dict_error(value, accepted)
    if type(value) is list:
        return _dicts_error(value, accepted) if item_kind is dict else _list_error(value, accepted)
    if type(value) is str:
        return None if _plain(value) in map(_plain, accepted) else "value_error:string"
    return None if value in accepted else "value_error:others"


def _first_type(accepted: Iterable[Any]) -> type | None:
    """The type of the first value that is not the empty string."""
    return next((type(value) for value in accepted if value != ""), None)


def _items_fit(value: list[Any], item_kind: type, accepted: list[Any]) -> bool:
    """Whether some accepted value allows the types of all items; one that is no list allows any."""
    for option in accepted:
        if type(option) is not list:
            return True
        kinds = (item_kind, _first_type(option))
        if all(type(item) in kinds for item in value):
            return True
    return False


def _plain(value: object) -> object:
    """A string without what BFCL ignores in strings; any other value as it is."""
    return value.translate(_IGNORED_IN_STRINGS).lower() if isinstance(value, str) else value


def _list_error(value: list[Any], accepted: list[Any]) -> str | None:
    plain = [_plain(item) for item in value]
    # The empty string (may be left out) holds no items, and so an empty list equals it.
    options = ([_plain(item) for item in option] for option in accepted)
    return None if plain in options else "value_error:list/tuple"


def _dicts_error(value: list[Any], accepted: list[Any]) -> str | None:
    """A list of objects: some accepted list must match it object by object, in order."""
    error = "list_dict_checker:unclear"
    for option in accepted:
        if len(value) != len(option):
            error = "value_error:list_dict_count"
            continue
        errors = (_dict_error(item, [wanted]) for item, wanted in zip(value, option, strict=True))
        first = next((found for found in errors if found is not None), None)
        if first is None:
            return None
        error = first
    return error


def _dict_error(value: object, accepted: list[Any]) -> str | None:
    """An object: some accepted one must match. The error is that of the last one tried."""
    error = "dict_checker:unclear"
    if not isinstance(value, dict):
        return "type_error:nested"
    for option in accepted:
        if not isinstance(option, dict):  # the empty string: may be left out
            continue
        found = _one_dict_error(value, option)
        if found is None:
            return None
        error = found
    return error


def _one_dict_error(value: dict[str, Any], option: dict[str, list[Any]]) -> str | None:
    if any(key not in value and "" not in allowed for key, allowed in option.items()):
        return "value_error:dict_key"
    for key, item in value.items():
        if key not in option:
            return "value_error:dict_key"
        if _plain(item) not in map(_plain, option[key]):
            return "value_error:dict_value"
    return None
