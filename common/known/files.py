"""Files of the known-answer pair: real Gemma 4 files, made in a second."""

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from common.known.chain import (
    ANSWERING_NAMES,
    BOS,
    CONTEXT,
    DRAFTER_WIDTH,
    EOS,
    FEED_FORWARD,
    HEAD_SIZE,
    HEADS,
    LAYERS,
    NAMES,
    PAD,
    SPECIAL,
    TEMPLATE,
    UNK,
    WIDTH,
    Chain,
)

FORMATS = {
    "q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
}


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
