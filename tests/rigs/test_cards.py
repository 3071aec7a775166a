"""Cards: by name, by NVML's word, and refusals that help."""

from types import SimpleNamespace
from typing import Any

import pytest

from common import rig
from common.errors import RigError
from common.host import card
from common.rig import ROOT
from common.rigs import cards
from common.rigs.blueprint import COMMIT
from common.rigs.cards import CARDS

ASKED_FOR = {"1650ti", "3050", "t4", "l4", "3060", "4060", "4090", "h200"}


def in_host(
    monkeypatch: pytest.MonkeyPatch, *found: tuple[str, int, tuple[int, int] | None]
) -> None:
    """NVML finds these cards: name, MiB, compute capability."""

    def stand_in(name: str, mib: int, capability: tuple[int, int] | None) -> Any:
        facts = {"compute_capability": capability, "power_limit_w": 99.6}
        return SimpleNamespace(
            name=name, memory_mib=lambda: (mib - 500.0, float(mib)), describe=lambda: facts
        )

    monkeypatch.setattr(card, "cards", lambda: [stand_in(*card) for card in found])


@pytest.fixture(autouse=True)
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> list[card.Card]:
        raise RigError("no NVIDIA card can be used on this host (NVML: none)")

    monkeypatch.setattr(card, "cards", none)


def test_the_cards_asked_for_are_known() -> None:
    assert set(CARDS) >= ASKED_FOR


@pytest.mark.parametrize("slot", CARDS)
def test_a_card_is_found_under_each_of_its_names(slot: str) -> None:
    card = CARDS[slot]
    for name in (card.name, card.gpu_name, slot, card.name.removeprefix("NVIDIA ").lower()):
        assert cards.find(name) == card
    assert f" {card.gpu_name.replace('_', ' ')} ".lower() in f" {card.name} ".lower()


@pytest.mark.parametrize(
    ("shipped", "slot"),
    [
        (f"local-llamacpp-{slot}-{size}-q4_0", slot)
        for slot in ("3050oem", "1650ti")
        for size in ("2b", "4b")
    ],
)
def test_the_shipped_rigs_build_as_these_cards_say(shipped: str, slot: str) -> None:
    mine, card = rig.load(ROOT / shipped, {}), CARDS[slot]
    assert mine.llama_cpp_commit == COMMIT
    assert mine.cuda_version == card.cuda_version
    assert mine.cuda_architectures == (card.architectures,)
    assert ",".join(mine.cmake_extra) == card.cmake_extra
    assert mine.spec_draft_n_max == (2 if card.tensor_cores else 1)
    assert str(mine.gpu_name) in card.gpu_name


def test_without_a_card_and_without_a_name() -> None:
    with pytest.raises(RigError, match=r"no NVIDIA card .*; name the card: make new-rig GPU=") as e:
        cards.find(None)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("name", ["RTX 4080", "../../x", "l4'; id", "", "RTX", "L40S", "L4\0x"])
def test_an_unknown_name_is_refused_with_near_ones(name: str) -> None:
    with pytest.raises(RigError, match="is not known and not in this host") as caught:
        cards.find(name)
    assert "RTX 4090" in str(caught.value)


def test_near_names() -> None:
    with pytest.raises(RigError, match="did you mean NVIDIA GeForce RTX 40"):
        cards.find("RTX 4080")


def test_the_card_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    in_host(monkeypatch, ("NVIDIA GeForce RTX 5070 Ti", 16303, (12, 0)))
    card = cards.find(None)
    assert (card.slot, card.gpu_name) == ("5070ti", "RTX_5070_Ti")
    assert (card.memory_mib, card.architectures, card.power_w) == (16303, "120-real", 100)
    assert card.from_nvml
    assert card.tensor_cores
    assert cards.find("rtx 5070 ti") == card


def test_nvml_goes_before_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    in_host(monkeypatch, ("NVIDIA GeForce GTX 1650 Ti with Max-Q Design", 3900, None))
    card = cards.find("GTX 1650 Ti")
    assert (card.slot, card.memory_mib, card.capability) == ("1650ti", 3900, (7, 5))
    assert not card.tensor_cores
    assert "Turing" in card.about


def test_several_cards_must_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    in_host(monkeypatch, ("NVIDIA L4", 23034, (8, 9)), ("NVIDIA L4", 23034, (8, 9)))
    assert cards.find(None).slot == "l4"
    in_host(monkeypatch, ("NVIDIA L4", 23034, (8, 9)), ("Tesla T4", 15360, (7, 5)))
    with pytest.raises(RigError, match=r"several cards \(NVIDIA L4, Tesla T4\)"):
        cards.find(None)
    assert cards.find("T4").from_nvml


def test_old_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    in_host(monkeypatch, ("NVIDIA GeForce GTX 1080", 8192, (6, 1)))
    card = cards.find(None)
    assert (card.cuda_version, card.architectures) == (cards.OLD_CUDA_VERSION, "61-real")
    assert not card.tensor_cores
    in_host(monkeypatch, ("NVIDIA GeForce GTX 780", 3072, (3, 5)))
    with pytest.raises(RigError, match=r"compute capability 3\.5"):
        cards.find(None)


@pytest.mark.parametrize("name", ["NVIDIA TITAN V", "NVIDIA L4 (grid)", "NVIDIA L4'"])
def test_a_name_no_folder_can_have(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    in_host(monkeypatch, (name, 12288, (8, 0)))
    with pytest.raises(RigError, match="has a name that no rig's folder can be called by"):
        cards.find(None)
