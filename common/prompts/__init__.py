"""The prompts, as YAML beside this file: name -> text."""

from pathlib import Path

import yaml

FOLDER = Path(__file__).parent


def path(name: str) -> Path:
    return FOLDER / f"{name}.yaml"


def load(name: str) -> dict[str, str]:
    """The prompts of one measurement, in the file's order."""
    found = yaml.safe_load(path(name).read_text(encoding="utf-8"))
    return {key: text.strip() for key, text in found.items()}
