"""A pair of true shape: a target and a drafter with real layer sizes and random weights.

Every weight matrix lies on a 4-bit grid, so all formats hold the same weights: q4_0 exactly, bf16
(GGUF or safetensors) as the nearest bf16 of those, q8_0 as the converter would round that. A slice
of a tensor depends on the seed and its place alone, so memory stays small and every run writes the
same bytes, however many threads there are.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_VERSION, GGMLQuantizationType, LlamaFileType

from common.weights import q4_0, q8_0, slices
from common.weights.checkpoint import layout
from common.weights.gguf_file import GgufWriter, Setting, Tensor, byte_count, open_gguf
from common.weights.part_file import PartFile
from common.weights.shapes import FULL_HEAD, HEAD, Shape
from common.weights.tensor_names import COMPUTED

SEED = 4
SLICE = 2**21
"""values made at once by each thread"""
STEPS = (0.0025, 0.0075)
"""the range of the random steps; weights of about 0.02 keep activations finite"""
CONTEXT = 131072
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n"
    "{% endfor %}<|turn>model\n"
)
F32, BF16 = GGMLQuantizationType.F32, GGMLQuantizationType.BF16
FORMATS = {
    "q4_0": (GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "bf16": (BF16, LlamaFileType.MOSTLY_BF16),
}
ROLES = ("target", "drafter")

Progress = Callable[[int], object]


def write_gguf(
    path: Path,
    shape: Shape,
    role: str,
    kind: str,
    threads: int,
    progress: Progress,
    seed: int = SEED,
) -> None:
    """Write the target or the drafter as GGUF of `kind` (a key of FORMATS).

    progress gets values done. Raises RigError if `path` exists or the disk is full.
    """
    weight_type, file_type = FORMATS[kind]
    tensors = [
        replace(tensor, type=weight_type if tensor.type == BF16 else tensor.type)
        for tensor in layout_of(shape, role)
    ]
    with GgufWriter(path, _settings(shape, role, file_type), tensors, 32) as writer:

        def write(number: int, start: int) -> int:
            tensor = writer.tensors[number]
            values = _slice(tensor, role, number, start, seed)
            writer.write(tensor, start, values)
            return min(SLICE, tensor.size - start)

        slices.work([t.size for t in tensors], SLICE, write, threads, progress)


def write_safetensors(
    path: Path, shape: Shape, role: str, threads: int, progress: Progress, seed: int = SEED
) -> None:
    """Write the same weights as bf16 under the names of a published checkpoint.

    progress gets values done. Raises RigError if `path` exists or the disk is full.
    """
    tensors = layout_of(shape, role)
    header, offsets, length = layout(
        {tensor.name: tensor.shape for tensor in tensors if tensor.name not in COMPUTED}
    )
    with PartFile(path, length) as file:
        file.write(0, header)

        def write(number: int, start: int) -> int:
            tensor = tensors[number]
            if tensor.name in offsets:
                values = _slice(replace(tensor, type=BF16), role, number, start, seed)
                file.write(offsets[tensor.name] + 2 * start, values)
            return min(SLICE, tensor.size - start)

        slices.work([t.size for t in tensors], SLICE, write, threads, progress)


def size_of(shape: Shape, role: str, kind: str) -> int:
    """Bytes of the weights of a GGUF of `kind`: the file's size, less its metadata."""
    return sum(size for _name, size in sized(shape, role, kind))


def sized(shape: Shape, role: str, kind: str) -> Iterator[tuple[str, int]]:
    """Name and bytes of each tensor in a GGUF of `kind`."""
    weight_type, _ = FORMATS[kind]
    for tensor in layout_of(shape, role):
        kept = weight_type if tensor.type == BF16 else tensor.type
        yield tensor.name, byte_count(tensor.size, kept)


def layout_of(shape: Shape, role: str) -> list[Tensor]:
    """Every tensor by llama.cpp's name: matrices as BF16, everything else as F32."""
    matrices = _target_matrices(shape) if role == "target" else _drafter_matrices(shape)
    vectors = _vectors(shape, role)
    tensors = [Tensor(f"{name}.weight", size, BF16) for name, size in matrices]
    tensors += [Tensor(f"{name}.weight", (size,), F32) for name, size in vectors]
    if role == "target" and shape.experts:
        for layer in range(shape.layers):
            scale, down = f"blk.{layer}.ffn_gate_inp.scale", f"blk.{layer}.ffn_down_exps.scale"
            tensors += [Tensor(scale, (shape.hidden,), F32), Tensor(down, (shape.experts,), F32)]
    return tensors


def _target_matrices(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, per_layer = shape.hidden, shape.per_layer_embedding
    yield "token_embd", (shape.vocabulary, hidden)
    if per_layer:
        yield "per_layer_token_embd", (shape.vocabulary, per_layer * shape.layers)
        yield "per_layer_model_proj", (per_layer * shape.layers, hidden)
    for layer in range(shape.layers):
        head = HEAD if shape.is_sliding(layer) else FULL_HEAD
        wide = shape.feed_forward_of(layer)
        yield f"blk.{layer}.attn_q", (shape.heads * head, hidden)
        if shape.owns_kv(layer):
            yield f"blk.{layer}.attn_k", (shape.kv_heads_of(layer) * head, hidden)
            if shape.is_sliding(layer) or not shape.keys_are_values:
                yield f"blk.{layer}.attn_v", (shape.kv_heads_of(layer) * head, hidden)
        yield f"blk.{layer}.attn_output", (hidden, shape.heads * head)
        yield f"blk.{layer}.ffn_gate", (wide, hidden)
        yield f"blk.{layer}.ffn_up", (wide, hidden)
        yield f"blk.{layer}.ffn_down", (hidden, wide)
        if shape.experts:
            expert = shape.expert_feed_forward
            yield f"blk.{layer}.ffn_gate_inp", (shape.experts, hidden)
            yield f"blk.{layer}.ffn_gate_up_exps", (shape.experts, 2 * expert, hidden)
            yield f"blk.{layer}.ffn_down_exps", (shape.experts, hidden, expert)
        if per_layer:
            yield f"blk.{layer}.inp_gate", (per_layer, hidden)
            yield f"blk.{layer}.proj", (hidden, per_layer)


def _drafter_matrices(shape: Shape) -> Iterator[tuple[str, tuple[int, int]]]:
    hidden, wide = shape.drafter_hidden, shape.drafter_feed_forward
    yield "token_embd", (shape.vocabulary, hidden)
    # It reads the last token's embedding beside the target's hidden state.
    yield "nextn.pre_projection", (hidden, 2 * shape.hidden)
    yield "nextn.post_projection", (shape.hidden, hidden)
    for layer in range(shape.drafter_layers):
        width = shape.drafter_heads * _drafter_head(shape, layer)
        yield f"blk.{layer}.attn_q", (width, hidden)
        yield f"blk.{layer}.attn_output", (hidden, width)
        yield f"blk.{layer}.ffn_gate", (wide, hidden)
        yield f"blk.{layer}.ffn_up", (wide, hidden)
        yield f"blk.{layer}.ffn_down", (hidden, wide)


def _vectors(shape: Shape, role: str) -> Iterator[tuple[str, int]]:
    target = role == "target"
    hidden = shape.hidden if target else shape.drafter_hidden
    yield "output_norm", hidden
    yield "rope_freqs", FULL_HEAD // 2
    per_layer = shape.per_layer_embedding if target else 0
    if per_layer:
        yield "per_layer_proj_norm", per_layer
    for layer in range(shape.layers if target else shape.drafter_layers):
        sliding = shape.is_sliding(layer) if target else _drafter_slides(shape, layer)
        head = HEAD if sliding else FULL_HEAD
        yield f"blk.{layer}.attn_q_norm", head
        if target and shape.owns_kv(layer):
            yield f"blk.{layer}.attn_k_norm", head
        if per_layer:
            yield f"blk.{layer}.post_norm", hidden
        yield f"blk.{layer}.layer_output_scale", 1
        names = ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"]
        if target and shape.experts:
            names += ["pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"]
        for name in names:
            yield f"blk.{layer}.{name}", hidden


def _drafter_slides(shape: Shape, layer: int) -> bool:
    return layer < shape.drafter_layers - 1


def _drafter_head(shape: Shape, layer: int) -> int:
    return HEAD if _drafter_slides(shape, layer) else FULL_HEAD


def _slice(
    tensor: Tensor, role: str, number: int, start: int, seed: int
) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.float32]:
    """The values of `tensor` from number `start` on, in its type."""
    count = min(SLICE, tensor.size - start)
    if tensor.type == F32:
        return _vector(tensor, start, count)
    if len(tensor.shape) == 1:
        return q4_0.round_to_bf16(_vector(tensor, start, count))
    rng = np.random.Generator(np.random.SFC64([seed, ROLES.index(role), number, start]))
    groups = count // q4_0.GROUP
    low, high = np.array(STEPS, np.float16).view(np.uint16)
    blocks = np.empty((groups, q4_0.BLOCK_BYTES), np.uint8)
    steps = rng.integers(low, high, groups, np.uint16)
    blocks[:, :2] = steps.astype("<u2").view(np.uint8).reshape(-1, 2)
    levels = rng.integers(0, 2**64, groups * 2, np.uint64)  # 16 bytes, so 32 levels, a group
    blocks[:, 2:] = levels.view(np.uint8).reshape(-1, 16)
    if tensor.type == GGMLQuantizationType.Q4_0:
        return blocks
    bits = np.empty((groups, q4_0.GROUP), np.uint16)
    q4_0.blocks_to_bf16(blocks, bits)
    if tensor.type == BF16:
        return bits
    wide = np.empty((groups, q8_0.BLOCK_BYTES), np.uint8)
    q8_0.quantize_bf16(bits, wide)
    return wide


def _vector(tensor: Tensor, start: int, count: int) -> npt.NDArray[np.float32]:
    values = np.ones(tensor.size, np.float32)
    if tensor.name == "rope_freqs.weight":
        # A full-attention head rotates a quarter of its values; 1e30 stands still (the converter's
        # way to say so).
        values[tensor.size // 4 :] = 1e30
    return values[start : start + count]


def _settings(shape: Shape, role: str, file_type: LlamaFileType) -> tuple[Setting, ...]:
    """The metadata, made by the gguf package and read back as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.gguf"
        arch = "gemma4" if role == "target" else "gemma4-assistant"
        writer = gguf.GGUFWriter(path, arch)
        writer.add_name("true shape, random weights")
        writer.add_file_type(file_type)
        writer.add_quantization_version(GGML_QUANT_VERSION)
        _add_sizes(writer, arch, shape)
        _add_tokenizer(writer, shape.vocabulary)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return open_gguf(path).settings


def _add_sizes(writer: gguf.GGUFWriter, arch: str, shape: Shape) -> None:
    if arch == "gemma4":
        layers = range(shape.layers)
        writer.add_embedding_length(shape.hidden)
        writer.add_feed_forward_length([shape.feed_forward_of(layer) for layer in layers])
        writer.add_head_count(shape.heads)
        writer.add_sliding_window_pattern([shape.is_sliding(layer) for layer in layers])
        writer.add_uint32(f"{arch}.attention.shared_kv_layers", shape.kv_shared_layers)
        writer.add_uint32(f"{arch}.embedding_length_per_layer_input", shape.per_layer_embedding)
        writer.add_float32(f"{arch}.final_logit_softcapping", 30.0)
        if shape.experts:
            writer.add_expert_count(shape.experts)
            writer.add_expert_used_count(shape.experts_used)
            writer.add_expert_feed_forward_length(shape.expert_feed_forward)
    else:
        layers = range(shape.drafter_layers)
        writer.add_embedding_length(shape.drafter_hidden)
        writer.add_feed_forward_length(shape.drafter_feed_forward)
        writer.add_head_count(shape.drafter_heads)
        writer.add_sliding_window_pattern([_drafter_slides(shape, layer) for layer in layers])
        writer.add_uint32(f"{arch}.attention.shared_kv_layers", shape.drafter_layers)
        writer.add_uint32(f"{arch}.embedding_length_per_layer_input", 0)
        writer.add_uint32(f"{arch}.embedding_length_out", shape.hidden)
        writer.add_uint32(f"{arch}.nextn_predict_layers", shape.drafter_layers)
    writer.add_block_count(len(layers))
    writer.add_context_length(CONTEXT)
    if shape.full_kv_heads is None:
        writer.add_head_count_kv(shape.kv_heads)
    else:
        slides = shape.is_sliding if arch == "gemma4" else partial(_drafter_slides, shape)
        few = shape.full_kv_heads
        writer.add_head_count_kv([shape.kv_heads if slides(n) else few for n in layers])
    writer.add_key_length(FULL_HEAD)
    writer.add_value_length(FULL_HEAD)
    writer.add_key_length_swa(HEAD)
    writer.add_value_length_swa(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(shape.window)
    writer.add_rope_freq_base(1e6)
    writer.add_float32(f"{arch}.rope.freq_base_swa", 1e4)
    writer.add_rope_dimension_count(FULL_HEAD)
    writer.add_uint32(f"{arch}.rope.dimension_count_swa", HEAD)


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: int) -> None:
    """A vocabulary of full size: bytes, ASCII, then words nobody types."""
    kind = gguf.TokenType
    tokens = SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [kind.CONTROL] * len(SPECIAL) + [kind.BYTE] * 256
    tokens += ["\n", "\u2581"] + [chr(code) for code in range(33, 127)]
    tokens += [f"\u2581w{number}" for number in range(vocabulary - len(tokens))]
    types += [kind.NORMAL] * (vocabulary - len(types))
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_scores([0.0] * vocabulary)
    writer.add_token_types(types)
    writer.add_token_merges(["\u2581 w"])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)
