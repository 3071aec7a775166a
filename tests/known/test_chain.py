"""The known answer, worked out a second way, and against the real server."""

from itertools import count

import gguf
import pytest

from common import places
from common.engines.llamacpp import counters
from common.engines.llamacpp.build import Engine
from common.known import chain as pair
from common.known.chain import Chain, Drafting
from common.rig import Rig
from common.serving import client
from common.serving.process import Server

CHAIN = pair.make_chain()


def by_positions(chain: Chain, size: int, n_predict: int, n_max: int) -> Drafting:
    """The same count from whole texts: for each draft, compare two slices of the reply."""
    reply = chain.reply(size, n_predict)
    per_pos = [0] * n_max
    drafted = drafts = at = 0
    while at < n_predict - 1:
        guess = [reply[at]]
        for _ in range(min(n_max, n_predict - at - 2)):
            guess.append(chain.guess[guess[-1]])
        truth = reply[at + 1 : at + len(guess)]
        kept = next(i for i in count() if guess[1 : i + 2] != truth[: i + 1] or i == len(truth))
        for position in range(kept):
            per_pos[position] += 1
        drafts += bool(truth)
        drafted += len(truth)
        at += kept + 1
    return Drafting(drafts, drafted, sum(per_pos), tuple(per_pos))


@pytest.mark.parametrize("n_max", [1, 2, 3, 7])
@pytest.mark.parametrize("tokens", [2, 3, 17, 256])
def test_two_ways_of_counting_agree(n_max: int, tokens: int) -> None:
    for size in range(10, 20):
        counted = pair.expect(CHAIN, size, tokens, n_max)
        assert counted == by_positions(CHAIN, size, tokens, n_max)


def test_the_drafter_is_wrong_where_it_should_be() -> None:
    wrong = [token for token, guess in CHAIN.guess.items() if guess != CHAIN.after[token]]
    assert (len(CHAIN.guess), len(wrong)) == (160, 64)


def test_prompts_enter_the_cycle_at_different_places() -> None:
    assert len({CHAIN.reply(size, 1)[0] for size in range(10, 20)}) == 10


def test_the_files_are_gemma_4_in_q4_0(tiny: Rig) -> None:
    for name, arch in ((tiny.model, "gemma4"), (tiny.spec_draft_model, "gemma4-assistant")):
        reader = gguf.GGUFReader(places.model_file(str(name)))
        assert reader.fields["general.architecture"].contents() == arch
        matrices = [tensor for tensor in reader.tensors if len(tensor.shape) == 2]
        assert {tensor.tensor_type for tensor in matrices} == {gguf.GGMLQuantizationType.Q4_0}


@pytest.mark.engine
@pytest.mark.parametrize(
    ("n_max", "prompt"),
    [
        (1, "Any words will do here, since the model reads only their number."),
        (2, "Any words will do here, since the model reads only their number."),
        (3, "größer als 😀 und mehr 漢字: 33 bytes, 24 characters, 25 UTF-16 units"),
    ],
)
def test_the_server_keeps_exactly_the_known_share(
    tiny: Rig, real_engine: Engine, n_max: int, prompt: str
) -> None:
    size = len(prompt.encode())
    rig = tiny.variant({"SPEC_DRAFT_N_MAX": str(n_max)})
    with Server(rig, real_engine, rig.folder / "server.log", measuring=True):
        before = counters.read(rig.url)
        reply = client.ask(rig.url, [client.chat(prompt, 256, temperature=0)], 60)[0]
        seen = counters.read(rig.url) - before
    known = pair.expect(CHAIN, size, 256, n_max)
    assert reply.error is None
    assert reply.content == CHAIN.text(CHAIN.reply(size, 256))
    assert (reply.draft_n, reply.draft_n_accepted) == (known.drafted, known.accepted)
    assert (seen.drafts, seen.accepted_per_pos) == (known.drafts, known.accepted_per_pos)
