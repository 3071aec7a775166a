"""Counters: llama-server's /metrics, and what happened between two readings."""

import math
import re
from dataclasses import dataclass

from common.engines import asking
from common.errors import RigError

_LINE = re.compile(r"^llamacpp:(\w+)(?:\{position=\"(\d+)\"\})? +(\S+)", re.ASCII | re.MULTILINE)
LONGEST = 1024
"""positions of a draft; llama.cpp's own bound on tokens drafted at once is far below"""
ALWAYS = {"prompt_tokens_total", "tokens_predicted_total", "n_decode_total"}
"""counters that every llama-server has"""


@dataclass(frozen=True)
class Counters:
    """Totals since the server started. Subtract two to get what happened in between."""

    drafts: int
    drafted: int
    accepted: int
    accepted_per_pos: tuple[int, ...]
    prompt_tokens: int
    predicted_tokens: int
    decodes: int
    busy: float
    """slots that worked, summed over decodes"""

    def __sub__(self, earlier: "Counters") -> "Counters":
        before = earlier.accepted_per_pos + (0,) * len(self.accepted_per_pos)
        return Counters(
            self.drafts - earlier.drafts,
            self.drafted - earlier.drafted,
            self.accepted - earlier.accepted,
            tuple(a - b for a, b in zip(self.accepted_per_pos, before, strict=False)),
            self.prompt_tokens - earlier.prompt_tokens,
            self.predicted_tokens - earlier.predicted_tokens,
            self.decodes - earlier.decodes,
            self.busy - earlier.busy,
        )

    def to_json(self) -> dict[str, object]:
        return {
            "drafts": self.drafts,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "accepted_per_pos": list(self.accepted_per_pos),
            "prompt_tokens": self.prompt_tokens,
            "predicted_tokens": self.predicted_tokens,
            "busy_slots": self.busy / self.decodes if self.decodes else None,
        }


def parse(text: str) -> Counters:
    """Read the Prometheus text of /metrics. A server without a drafter has no counter of drafts,
    which counts 0. Raises RigError if the text is not llama-server's.
    """
    totals: dict[str, float] = {}
    per_pos: dict[int, int] = {}
    for name, position, value in _LINE.findall(text):
        if name == "spec_decode_num_accepted_tokens_per_pos_total":
            if len(position) > 4 or int(position or 0) >= LONGEST:
                raise RigError(f"the reply counts drafts of {position[:20]} tokens, which is none")
            per_pos[int(position or 0)] = int(_number(name, value))
        elif not position:
            totals[name] = _number(name, value)

    lacking = sorted(ALWAYS - totals.keys())
    if lacking:
        raise RigError(f"the reply has no llamacpp:{lacking[0]}, so it is not llama-server's")

    def total(name: str) -> int:
        return int(totals.get(name, 0))

    decodes = total("n_decode_total")
    return Counters(
        total("spec_decode_num_drafts_total"),
        total("spec_decode_num_draft_tokens_total"),
        total("spec_decode_num_accepted_tokens_total"),
        tuple(per_pos.get(i, 0) for i in range(max(per_pos, default=-1) + 1)),
        total("prompt_tokens_total"),
        total("tokens_predicted_total"),
        decodes,
        totals.get("n_busy_slots_per_decode", 0) * decodes,
    )


def _number(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found < 0:
        raise RigError(f"llamacpp:{name} is {text[:40]}, which is no count")
    return found


def read(url: str) -> Counters:
    """Ask the server at `url`. Raises RigError if it does not answer, or with no counters."""
    text = asking.text(url, "/metrics", timeout_s=10)
    try:
        return parse(text)
    except RigError as error:
        raise RigError(f"{url}/metrics: {error}") from None
