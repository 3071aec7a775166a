"""Cards: what must be known of an NVIDIA card to make a rig for it.

Facts are from the makers' public specifications, memory as drivers report it. Nothing here has been
measured. A card that NVML finds on this host needs no entry: NVML says what it is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from common.errors import RigError, did_you_mean
from common.grammar import SAFE_VALUE
from common.host import card

CUDA_VERSION = "13.4.1"
OLD_CUDA_VERSION = "12.9.1"
"""for cards before Turing, which CUDA 13 no longer builds for"""
TURING = (7, 5)
OLDEST = (5, 0)
"""the oldest compute capability that CUDA 12 builds for"""
# Words of a card's name that say nothing more than that it is one.
_COMMON_WORDS = frozenset(
    ("nvidia", "geforce", "tesla", "quadro", "rtx", "gtx", "gpu", "with", "max-q", "design")
)


def _slot(name: str) -> str:
    """What distinguishes a card, in letters and digits: RTX 3050 OEM is 3050oem."""
    words = [word for word in name.lower().replace("_", " ").split() if word not in _COMMON_WORDS]
    return re.sub(r"[^a-z0-9]", "", "".join(words))


@dataclass(frozen=True)
class Card:
    """One card."""

    name: str
    """as NVML gives it"""
    memory_mib: int
    capability: tuple[int, int]
    """compute capability, such as (8, 6)"""
    about: str
    """architecture and chip"""
    power_w: int | None = None
    """the usual power limit; None where it is not known"""
    cmake_extra: str = ""
    """the key CMAKE_EXTRA; the shipped GTX 1650 Ti rigs have none, so no card here has"""
    from_nvml: bool = False
    """whether memory and capability are what NVML says of a card in this host"""

    @property
    def slot(self) -> str:
        """The third slot of a rig's name."""
        return _slot(self.name)

    @property
    def gpu_name(self) -> str:
        """The key GPU_NAME: the name without its maker, _ for a space."""
        words = [word for word in self.name.split() if word.lower() not in ("nvidia", "geforce")]
        return "_".join(words)

    @property
    def tensor_cores(self) -> bool:
        """GTX 16xx is Turing without tensor cores."""
        return self.capability >= (7, 0) and "GTX 16" not in self.name

    @property
    def cuda_version(self) -> str:
        return CUDA_VERSION if self.capability >= TURING else OLD_CUDA_VERSION

    @property
    def architectures(self) -> str:
        """The key CUDA_ARCHITECTURES: finished kernels for this card alone, a small build."""
        return f"{self.capability[0]}{self.capability[1]}-real"


CARDS: Mapping[str, Card] = {
    card.slot: card
    for card in (
        Card("NVIDIA GeForce GTX 1650 Ti", 4096, (7, 5), "Turing TU117", 50),
        Card("NVIDIA GeForce RTX 3050", 8192, (8, 6), "Ampere GA106", 130),
        Card("NVIDIA GeForce RTX 3050 OEM", 8192, (8, 6), "Ampere GA106", 120),
        Card("NVIDIA GeForce RTX 3060", 12288, (8, 6), "Ampere GA106", 170),
        Card("NVIDIA GeForce RTX 4060", 8188, (8, 9), "Ada AD107", 115),
        Card("NVIDIA GeForce RTX 4090", 24564, (8, 9), "Ada AD102", 450),
        Card("Tesla T4", 15360, (7, 5), "Turing TU104", 70),
        Card("NVIDIA L4", 23034, (8, 9), "Ada AD104", 72),
        Card("NVIDIA H200", 143771, (9, 0), "Hopper GH100", 700),
    )
}
"""By the third slot of a rig's name."""


def find(name: str | None) -> Card:
    """The card of this name, or without one the card of this host.

    What NVML says of a card in this host goes before what is written here. Raises RigError if there
    is no such card, no card at all, or one that cannot be built for.
    """
    present, problem = _present()
    if name is None:
        if not present:
            raise RigError(f"{problem}; name the card: make new-rig GPU=L4. Known: {_known()}")
        if len({card.name for card in present}) > 1:
            names = ", ".join(card.name for card in present)
            raise RigError(f"this host has several cards ({names}); name one with GPU=")
        return _checked(present[0])
    slot = _slot(name)
    for one in (*present, *CARDS.values()):
        if slot == one.slot:
            return _checked(one)
    hint = did_you_mean(slot, CARDS, lambda near: CARDS[near].name, most=2, alike=0.5)
    raise RigError(
        f"GPU={name!r}: this card is not known and not in this host",
        fix=f"{hint} Known: {_known()}. ".lstrip()
        + "On the host with the card leave GPU= out, and NVML says what it is",
    )


def _known() -> str:
    return ", ".join(card.gpu_name.replace("_", " ") for card in CARDS.values())


def _present() -> tuple[list[Card], str]:
    """The cards of this host as NVML describes them, and why there is none."""
    try:
        found = card.cards()
    except RigError as error:
        return [], str(error)
    return [_described(card) for card in found], "this host has no NVIDIA card"


def _described(found: card.Card) -> Card:
    facts = found.describe()
    known = CARDS.get(_slot(found.name))
    about, power = (known.about, known.power_w) if known else ("as NVML describes it", None)
    capability = facts["compute_capability"] or (known.capability if known else (0, 0))
    limit = facts["power_limit_w"]
    return Card(
        found.name,
        int(found.memory_mib()[1]),
        tuple(capability),
        about,
        power if limit is None else round(limit),
        from_nvml=True,
    )


def _checked(card: Card) -> Card:
    """The card, if a rig can be named after it and llama.cpp built for it."""
    if not SAFE_VALUE.fullmatch(card.gpu_name) or not re.match(r"[a-z]*\d", card.slot):
        raise RigError(f"the card {card.name!r} has a name that no rig's folder can be called by")
    if card.capability < OLDEST:
        major, minor = card.capability
        raise RigError(
            f"the {card.name} has compute capability {major}.{minor}; CUDA {OLD_CUDA_VERSION} "
            f"builds for {OLDEST[0]}.{OLDEST[1]} and newer"
        )
    return card
