"""GSM8K as lm-evaluation-harness judges it: its task gsm8k, version 3, filters and metric.

Source: lm_eval/tasks/gsm8k/gsm8k.yaml, filters/extraction.py and exact_match in api/metrics.py of
lm_eval 0.4.13 (MIT). Only what judges a reply is here: the harness's prompt, its five examples and
its stop words make another reply, and are not part of the verdict.
"""

import re

_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")


def strict(reply: str) -> str | None:
    """What follows the first `#### `, if that looks like a number; None if nothing does."""
    found = _STRICT.search(reply)
    return clean(found[1]) if found else None


def flexible(reply: str) -> str | None:
    """The last thing in the reply that looks like a number; None if nothing does."""
    found = [match[0] for match in _FLEXIBLE.finditer(reply)]
    return clean(found[-1]) if found else None


def clean(text: str) -> str:
    """What is compared, of a reply's number and of a whole solution: as text, not as a number."""
    text = text.replace(",", "").replace("$", "").rpartition("#### ")[2]
    return re.sub(r"\.$", "", text).lower()
