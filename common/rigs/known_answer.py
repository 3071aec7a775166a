"""Known answer: the blueprint of the rig that holds a card's engine to an answer known on paper.

It is the known-answer rig of the CPU (local-llamacpp-cpu-tiny-q4_0) with the engine of a card.
"""

from dataclasses import dataclass

from common.known.chain import DRAFTER_NAME, TARGET_NAME
from common.rigs import blueprint
from common.rigs.cards import Card

SIZE = "tiny"
"""what SIZE= and the fourth slot of the rig's name say"""
TITLE = "known-answer pair, made on the spot"
# As in the rig of the CPU. The pair takes less than a megabyte, so this fits every card.
LOADS = {
    "ctx_size": 8192,
    "parallel": "",
    "longctx_depths": "0,1024,8192,32768",
    "longctx_ctx_size": 34816,
    "sweep_parallel": 16,
    "sweep_ctx_size": 16384,
    "longmixed_parallel": 8,
    "longmixed_ctx_size": 32768,
}


@dataclass(frozen=True)
class KnownAnswer:
    """A known-answer rig that does not exist yet."""

    card: Card
    memory: str = "4g"
    """mostly what CUDA itself takes of the host's memory"""

    @property
    def name(self) -> str:
        return f"local-llamacpp-{self.card.slot}-{SIZE}-q4_0"

    @property
    def row(self) -> str:
        return blueprint.row(self.name, self.card, TITLE)

    def files(self) -> dict[str, str]:
        """Name and text of every file in the rig's folder."""
        values: dict[str, object] = {
            **blueprint.of_card(self.card),
            **LOADS,
            "title": "The known-answer target",
            "made_from": "",
            "model_note": "# made on the spot by make draft, in a second",
            "model": TARGET_NAME,
            "model_hub": "",
            "drafter_note": "# made with it",
            "drafter": DRAFTER_NAME,
            "drafter_hub": "",
            "drafter_sha256": "",
            "checkpoint": "",
            "shape": SIZE,
            "card_name": self.card.name,
        }
        return {
            "tpu.env": blueprint.filled("tpu.env", values),
            "Makefile": blueprint.MAKEFILE,
            "README.md": blueprint.filled("known_answer.md", values),
        }
