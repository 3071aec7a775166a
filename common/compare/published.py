"""Published: what a study has said of a rig's card and model, from the rig's published.yaml.

A figure holds a `value`, a `range` of two, or a `statement` in words; `interval` is its 95%
interval where the study gave one. `what`, `quantity`, `arm` and `place` say which measured figure
stands beside it (common/measure/quantities.py), as far as there is one. Its `conditions` are those
under which the study measured; only what the study states is there. `prompts` names a text that is
the study's own.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from common.errors import RigError
from common.measure import page

FILE = "published.yaml"
SCHEMA = Path(__file__).with_name("published-1.json")
# The fewest decimals a figure of this unit is written with.
DECIMALS = {"x": 2, "tokens/s": 1, "%": 1, "share": 2}


def load(folder: Path) -> list[dict[str, Any]]:
    """The published figures of the rig in `folder`, each with all its conditions and its source.

    Empty where there is no published.yaml: nothing has been published for that rig. Raises RigError
    naming the file and what is wrong in it.
    """
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RigError(f"{path} cannot be read: {error}") from None
    except jsonschema.ValidationError as error:
        where = "/".join(str(part) for part in error.absolute_path) or "the whole file"
        raise RigError(f"{path}: {where}: {error.message}") from None
    return [_whole(figure, found) for figure in found["figures"]]


def _whole(figure: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """One figure with every key, absent ones None."""
    keys = (
        "title",
        "what",
        "quantity",
        "arm",
        "place",
        "value",
        "range",
        "interval",
        "statement",
        "unit",
        "note",
    )
    conditions = {**found["conditions"], **figure.get("conditions", {})}
    return {
        **{key: figure.get(key) for key in keys},
        "conditions": conditions,
        "source": found["source"],
    }


def in_words(figure: Mapping[str, Any]) -> str:
    """The figure as it was published."""
    if figure["statement"] is not None:
        return str(figure["statement"])
    numbers = [figure["value"]] if figure["range"] is None else figure["range"]
    interval, unit = figure["interval"] or [], figure["unit"]
    digits = max(DECIMALS.get(unit, 0), *(_decimals(n) for n in (*numbers, *interval)))
    text = " to ".join(f"{number:,.{digits}f}" for number in numbers)
    if interval:
        text += f" ({page.LEVEL}: {interval[0]:.{digits}f} to {interval[1]:.{digits}f})"
    if unit == "share":
        return text
    return text + (unit if unit in ("x", "%") else f" {unit.rstrip('s') if text == '1' else unit}")


def _decimals(number: float) -> int:
    return len(str(number).rstrip("0").partition(".")[2])


def conditions_in_words(figure: Mapping[str, Any]) -> str:
    """What was special about this figure: draft length, engine, settings, prompts, note."""
    known = figure["conditions"]
    parts = []
    if "draft_length" in known:
        parts.append(f"n={known['draft_length']}")
    if "requests_at_once" in known:
        parts.append(f"{known['requests_at_once']} at once")
    parts.append(f"commit {known['engine_commit']}")
    shown = {key: value for key, value in known["settings"].items() if key in SHOWN}
    parts += [f"{key}={value}" for key, value in shown.items()]
    if "prompts" in known:
        parts.append(f"prompts: {known['prompts']}")
    if figure["note"]:
        parts.append(figure["note"])
    return "; ".join(parts)


SHOWN = ("CTX_SIZE", "PARALLEL", "KV_UNIFIED")


def table(figures: Sequence[Mapping[str, Any]]) -> str:
    """The table of a rig's README, in Markdown."""
    rows = [[figure["title"], in_words(figure), conditions_in_words(figure)] for figure in figures]
    return page.table(["figure", "published", "conditions"], rows)
