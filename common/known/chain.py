"""The known-answer pair: a target and a drafter whose kept share is known before anything runs.

Both are real Gemma 4 files with every attention and feed-forward weight zero, so the next token
depends on the last token alone. The target walks a cycle of syllables. The drafter walks the same
cycle but is wrong after a known set of syllables. What is drafted and kept at each draft length
then follows by walking the chain with a pencil; no model is needed.

All weights are whole numbers, so every format holds the same model: Q4_0 and bf16 to the bit, Q8_0
as near as the converter would round.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH = 256  # the target's hidden size; a Hadamard matrix of this order has exactly orthogonal rows
DRAFTER_WIDTH = WIDTH + 32  # llama.cpp refuses a drafter as wide as its target
LAYERS = 4
HEADS = 2
HEAD_SIZE = 32
FEED_FORWARD = 64
CONTEXT = 131072
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"]
BOS, EOS, UNK, PAD = 2, 1, 3, 0
SPACE = "\u2581"
# The reply starts after the last digit of the prompt's length, so prompts differ in where they
# enter the cycle although the model cannot read them. llama-server's templates count bytes.
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n"
    "{% endfor %}<|turn>model\n{{ messages[-1].content | length }}"
)
SEED = 4
WRONG_SHARE = 0.4
TARGET_NAME = "known-answer-tiny-target-q4_0.gguf"
DRAFTER_NAME = "known-answer-tiny-drafter-q4_0.gguf"
NAMES = (TARGET_NAME, DRAFTER_NAME)
# A second pair, whose replies end in an answer: for scores that are known in advance.
ANSWER = 7
ANSWERING_NAMES = (
    "known-answer-tiny-answering-target-q4_0.gguf",
    "known-answer-tiny-answering-drafter-q4_0.gguf",
)


@dataclass(frozen=True)
class Chain:
    """What the pair says: token texts, and for each token the next one, for target and drafter."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    after: Mapping[int, int]
    """target: token -> next token, for syllables and digits"""
    guess: Mapping[int, int]
    """drafter: token -> the next token it proposes, for syllables"""

    def reply(self, size: int, n_predict: int) -> list[int]:
        """Token ids of the target's reply to a user message of so many bytes of UTF-8, without the
        end of sequence."""
        last = self.tokens.index(str(size)[-1])
        ids: list[int] = []
        while len(ids) < n_predict and (last := self.after[last]) != EOS:
            ids.append(last)
        return ids

    def text(self, ids: Sequence[int]) -> str:
        return "".join(self.tokens[i] for i in ids).replace(SPACE, " ")


@dataclass(frozen=True)
class Drafting:
    """What drafting one reply comes to: counts of drafts, drafted and accepted tokens."""

    drafts: int
    drafted: int
    accepted: int
    accepted_per_pos: tuple[int, ...]

    def __add__(self, other: "Drafting") -> "Drafting":
        per_pos = tuple(
            a + b for a, b in zip(self.accepted_per_pos, other.accepted_per_pos, strict=True)
        )
        return Drafting(
            self.drafts + other.drafts,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
            per_pos,
        )


def make_chain(
    seed: int = SEED, wrong_share: float = WRONG_SHARE, answer: int | None = None
) -> Chain:
    """The cycle of 160 syllables and the drafter's errors, from a seed.

    With an `answer` (one digit), the cycle is left after one syllable and the reply ends in
    "####" and that digit. A message whose length ends in that digit gets an empty reply, since the
    digit is followed by the end.
    """
    rng = random.Random(seed)  # noqa: S311 (a test pattern, not a secret)
    consonants, endings = "bcdfghjklmnpqrstvwxz", ["a", "e", "i", "o", "u", "an", "en", "on"]
    tokens = SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += ["\n", SPACE] + [chr(code) for code in range(33, 127)]
    merges: list[str] = []
    syllables: list[str] = []
    for consonant in consonants:
        head = SPACE + consonant
        tokens.append(head)
        merges.append(f"{SPACE} {consonant}")
        for ending in endings:
            tokens.append(head + ending)
            syllables.append(head + ending)
            merges.append(f"{head} {ending}" if len(ending) == 1 else f"{head + ending[0]} n")
    index = {token: i for i, token in enumerate(tokens)}
    cycle = [index[syllable] for syllable in syllables]
    rng.shuffle(cycle)
    after = dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    wrong = set(rng.sample(cycle, round(wrong_share * len(cycle))))
    guess = {t: after[after[t]] if t in wrong else after[t] for t in cycle}
    for digit, entry in zip("0123456789", rng.sample(cycle, 10), strict=True):
        after[index[digit]] = entry
    if answer is not None:
        tokens.append("####")
        way_out = {cycle[0]: len(tokens) - 1, len(tokens) - 1: index[str(answer)]}
        way_out[index[str(answer)]] = EOS
        after |= way_out
        guess |= way_out
    return Chain(tuple(tokens), tuple(merges), after, guess)


def expect(chain: Chain, size: int, n_predict: int, n_max: int) -> Drafting:
    """Walk the reply of `n_predict` tokens to a message of so many bytes, and count.

    `n_max` is the draft length. The first token comes from the prompt. From then on the server
    drafts up to n_max tokens, but never more than are still wanted after the one it produces
    itself, keeps the longest right prefix and adds one token of its own (llama-server,
    `get_n_draft_max`).
    """
    reply = chain.reply(size, n_predict)
    drafts = drafted = accepted = 0
    per_pos = [0] * n_max
    done = 1
    while done < n_predict:
        length = min(n_max, n_predict - done - 1)
        last, kept, right = reply[done - 1], 0, True
        for position in range(length):
            last = chain.guess[last]
            right = right and last == reply[done + position]
            if right:
                kept += 1
                per_pos[position] += 1
        drafts += length > 0
        drafted += length
        accepted += kept
        done += kept + 1
    return Drafting(drafts, drafted, accepted, tuple(per_pos))


def chain_of(target_name: str) -> Chain | None:
    """The chain that the target of this file name follows; None for any other model."""
    if target_name == ANSWERING_NAMES[0]:
        return make_chain(answer=ANSWER)
    return make_chain() if target_name == TARGET_NAME else None
