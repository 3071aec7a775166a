"""Test: what one accuracy test is to everything else: plan, scores, summary, report.

One file below tests/ holds a test with all that is its own, and tests/__init__.py names it; nothing
else keeps a list of them. A run keeps the names, so that its replies can be scored anew later.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from common.kinds.accuracy.outcomes import Outcome, StoredReply

PROMPTS = Path(__file__).with_name("prompts.yaml")
"""what questions are wrapped in, where they are; its digest goes into the manifest"""


class Question(Protocol):
    """A question in whatever form its test has it."""

    @property
    def id(self) -> str:
        """As in the run's files; no two questions of a run share one."""


Q = TypeVar("Q", bound=Question)
Kept = Mapping[str, Any]
"""a line of questions.jsonl: `id`, `test`, and what the test's `keep` gave"""


@dataclass(frozen=True)
class Verdict:
    """What a reply is worth."""

    outcome: Outcome
    read: Mapping[str, str | None]
    """per score what was read in the reply, or what is wrong with it"""
    right: Mapping[str, bool]
    """per score whether it is right"""


@dataclass(frozen=True)
class Test(Generic[Q]):
    """One accuracy test."""

    name: str
    """as in a run's files"""
    title: str
    """as in its report"""
    scores: Mapping[str, str]
    """its scores in the order shown: name -> title. Every reply has all of them. The first is the
    primary one: what is said of the test is said by it, whatever the others come to"""
    tokens: int
    """the longest reply; one that is cut off there is counted as truncated"""
    published: str
    """the digest that `load` gives for the published questions"""
    source: str
    """where the questions are from, under which licence: a sentence for the report"""
    setting: str
    """what names questions of one's own in the environment"""
    load: Callable[[], tuple[Sequence[Q], str]]
    """the questions, brought to this host if need be, and their digest. Raises RigError"""
    ask: Callable[[Q], dict[str, Any]]
    """what the request for a question holds beside its limits: `messages`, and `tools` if any"""
    keep: Callable[[Q], dict[str, Any]]
    """what scoring needs of a question, to be kept with the run"""
    expected: str
    """which part of that is the right answer"""
    verdict: Callable[[Kept, StoredReply], Verdict]
    """from nothing but what is stored: no model, no network"""
    legend: str = ""
    """what a reader must know of its scores: a sentence for the report"""

    @property
    def primary(self) -> str:
        return next(iter(self.scores))

    @property
    def digest_key(self) -> str:
        """What the manifest calls the questions' digest."""
        return f"{self.name}_sha256"
