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
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

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
# enter the cycle although the model cannot read them.
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
FORMATS = {
    "q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
}


@dataclass(frozen=True)
class Chain:
    """What the pair says: token texts, and for each token the next one, for target and drafter."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    after: Mapping[int, int]
    """target: token -> next token, for syllables and digits"""
    guess: Mapping[int, int]
    """drafter: token -> the next token it proposes, for syllables"""

    def reply(self, characters: int, n_predict: int) -> list[int]:
        """Token ids of the target's reply to a user message of so many characters, without the end
        of sequence."""
        last = self.tokens.index(str(characters)[-1])
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


def expect(chain: Chain, characters: int, n_predict: int, n_max: int) -> Drafting:
    """Walk the reply of `n_predict` tokens to a message of so many characters, and count.

    `n_max` is the draft length. The first token comes from the prompt. From then on the server
    drafts up to n_max tokens, but never more than are still wanted after the one it produces
    itself, keeps the longest right prefix and adds one token of its own (llama-server,
    `get_n_draft_max`).
    """
    reply = chain.reply(characters, n_predict)
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


def write_pair(
    folder: Path, chain: Chain, kind: str = "q4_0", answering: bool = False
) -> tuple[Path, Path]:
    """Write target and drafter as GGUF of `kind` (a key of FORMATS); returns both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ANSWERING_NAMES if answering else NAMES
    target, drafter = (folder / name_of(name, kind) for name in names)
    _write_target(target, chain, kind)
    write_drafter(drafter, chain, kind)
    return target, drafter


def name_of(name: str, kind: str) -> str:
    """The file name of the same model in another format."""
    return name.replace("-q4_0", f"-{kind}")


def _write_target(path: Path, chain: Chain, kind: str) -> None:
    rows = _directions(chain)
    output = np.zeros_like(rows)
    for token, following in chain.after.items():
        output[following] += rows[token]
    writer = _writer(path, "gemma4", WIDTH, chain, kind, sliding=[True, True, False, False])
    _matrix(writer, kind, "token_embd", rows)
    _matrix(writer, kind, "output", output)
    for layer in range(LAYERS):
        _layer(writer, kind, layer, WIDTH, owns_kv=True)
    _finish(writer, path)


def write_drafter(path: Path, chain: Chain, kind: str) -> None:
    """Write the drafter alone, as GGUF of `kind`."""
    rows = _directions(chain)
    output = np.zeros_like(rows)
    for token, following in chain.guess.items():
        output[following] += rows[token]
    sliding = [True, True, True, False]
    writer = _writer(path, "gemma4-assistant", DRAFTER_WIDTH, chain, kind, sliding)
    writer.add_uint32("gemma4-assistant.embedding_length_out", WIDTH)
    writer.add_uint32("gemma4-assistant.nextn_predict_layers", LAYERS)
    # The draft step reads [embedding of the last token, hidden state]; it keeps the first half.
    embedding_only = np.eye(DRAFTER_WIDTH, 2 * WIDTH, dtype=np.float32)
    embedding_only[WIDTH:] = 0
    padding = np.zeros((len(output), DRAFTER_WIDTH - WIDTH), np.float32)
    _matrix(writer, kind, "nextn.pre_projection", embedding_only)
    _matrix(writer, kind, "nextn.post_projection", np.zeros((WIDTH, DRAFTER_WIDTH), np.float32))
    _matrix(writer, kind, "token_embd", np.hstack([output, padding]))
    for layer in range(LAYERS):
        _layer(writer, kind, layer, DRAFTER_WIDTH, owns_kv=False)
    _finish(writer, path)


def _directions(chain: Chain) -> npt.NDArray[np.float32]:
    """One row of +-1 per token, [tokens, WIDTH]: exactly orthogonal among syllables and digits."""
    hadamard = np.array([[1.0]], np.float32)
    while len(hadamard) < WIDTH:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    rows = np.empty((len(chain.tokens), WIDTH), np.float32)
    spoken = sorted(chain.after)
    rows[:] = hadamard[len(spoken) :][np.arange(len(rows)) % (WIDTH - len(spoken))]
    rows[spoken] = hadamard[: len(spoken)]
    return rows


def _writer(
    path: Path, arch: str, width: int, chain: Chain, kind: str, sliding: list[bool]
) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path.with_suffix(".part"), arch)
    writer.add_name("known-answer pair, no trained weights")
    writer.add_file_type(FORMATS[kind][1])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_key_length_swa(HEAD_SIZE)
    writer.add_value_length_swa(HEAD_SIZE)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(512)
    writer.add_sliding_window_pattern(sliding)
    writer.add_rope_freq_base(1e6)
    writer.add_float32(f"{arch}.rope.freq_base_swa", 1e4)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_uint32(f"{arch}.rope.dimension_count_swa", HEAD_SIZE)
    writer.add_uint32(f"{arch}.attention.shared_kv_layers", 0)
    writer.add_uint32(f"{arch}.embedding_length_per_layer_input", 0)
    _tokenizer(writer, chain)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    writer.add_tensor("rope_freqs.weight", np.ones(HEAD_SIZE // 2, np.float32))
    return writer


def _tokenizer(writer: gguf.GGUFWriter, chain: Chain) -> None:
    kind = gguf.TokenType
    types = [kind.CONTROL] * len(SPECIAL) + [kind.BYTE] * 256
    types[UNK] = kind.UNKNOWN
    types += [kind.NORMAL] * (len(chain.tokens) - len(types))
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list([token.encode() for token in chain.tokens])
    writer.add_token_scores([0.0] * len(chain.tokens))
    writer.add_token_types(types)
    writer.add_token_merges(list(chain.merges))
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(UNK)
    writer.add_pad_token_id(PAD)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)


def _matrix(writer: gguf.GGUFWriter, kind: str, name: str, values: npt.NDArray[np.float32]) -> None:
    """Store a matrix of whole numbers from -8 to 7; in Q4_0 with the widest step, so exactly."""
    # Imported here: they load a compiler, and most commands never write a pair.
    from common.weights import q4_0, q8_0

    groups = values.reshape(-1, q4_0.GROUP)
    bits = q4_0.round_to_bf16(groups)
    if kind == "q4_0":
        whole = groups.astype(np.int8)
        steps = np.gcd.reduce(whole, axis=1)
        data = q4_0.pack(whole // np.maximum(steps, 1)[:, None], steps.astype(np.float16))
    elif kind == "q8_0":
        data = np.empty((len(groups), q8_0.BLOCK_BYTES), np.uint8)
        q8_0.quantize_bf16(bits, data)
    else:
        data = bits.astype("<u2").view(np.uint8)
    writer.add_tensor(f"{name}.weight", data.reshape(len(values), -1), raw_dtype=FORMATS[kind][0])


def _layer(writer: gguf.GGUFWriter, kind: str, layer: int, width: int, owns_kv: bool) -> None:
    shapes = {
        "attn_q": (HEADS * HEAD_SIZE, width),
        "attn_output": (width, HEADS * HEAD_SIZE),
        "ffn_gate": (FEED_FORWARD, width),
        "ffn_up": (FEED_FORWARD, width),
        "ffn_down": (width, FEED_FORWARD),
    }
    norms = {
        "attn_norm": width,
        "attn_q_norm": HEAD_SIZE,
        "post_attention_norm": width,
        "layer_output_scale": 1,
        "ffn_norm": width,
        "post_ffw_norm": width,
    }
    if owns_kv:
        shapes |= {"attn_k": (HEAD_SIZE, width), "attn_v": (HEAD_SIZE, width)}
        norms |= {"attn_k_norm": HEAD_SIZE}
    for name, shape in shapes.items():
        _matrix(writer, kind, f"blk.{layer}.{name}", np.zeros(shape, np.float32))
    for name, size in norms.items():
        writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(size, np.float32))


def _finish(writer: gguf.GGUFWriter, path: Path) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".part").replace(path)
