"""Memory: what a rig needs, from its files and settings."""

from pathlib import Path
from typing import Any

import gguf

from common import files, places
from common.errors import RigError
from common.rig import Rig

BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32,
         "q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32}  # fmt: skip
UBATCH = 512
COMPUTE_MIB = 300  # buffers for one batch, and what the CUDA context itself takes


def need_mib(rig: Rig) -> float | None:
    """Memory in MiB for weights, KV cache and working buffers; None while a file is missing.

    The KV cache holds `CTX_SIZE` tokens in full layers and the window plus a batch in sliding
    ones (llama.cpp's windowed cache); layers that share another's KV hold none. The drafter reads
    the model's cache and has none of its own. An estimate: the working buffers are a flat 300 MiB.

    Raises RigError if the model file cannot be read.
    """
    paths = [file.path for file in files.wanted(rig)]
    if not all(path.is_file() for path in paths):
        return None
    weights = sum(weights_mib(path, rig.backend == "cuda") for path in paths)
    return weights + kv_mib(rig, places.model_file(rig.model)) + COMPUTE_MIB


def weights_mib(path: Path, on_card: bool) -> float:
    """The weights of one file in MiB. Per-layer embeddings stay in the host's memory: llama.cpp
    looks rows up there, so a card does without them."""
    if not on_card:
        return path.stat().st_size / 2**20
    tensors = _reader(path).tensors
    held = [tensor for tensor in tensors if not tensor.name.startswith("per_layer_token_embd")]
    return sum(int(tensor.n_bytes) for tensor in held) / 2**20


def _reader(path: Path) -> Any:
    try:
        return gguf.GGUFReader(path)
    except (OSError, ValueError, IndexError) as error:
        raise RigError(f"{path} is not a readable GGUF file: {error}; fetch it again") from None


def kv_mib(rig: Rig, model: Path) -> float:
    """The KV cache in MiB."""
    layers, shared, heads, window, sliding, sizes = _shape(model)
    slots = rig.parallel or 1
    cells_sliding = min(rig.ctx_size, (window + UBATCH) * slots) if window else rig.ctx_size
    total = 0.0
    for layer in range(layers - shared):
        slides = bool(window) and (sliding[layer] if layer < len(sliding) else False)
        key, value = sizes["sliding" if slides else "full"]
        cells = cells_sliding if slides else rig.ctx_size
        per_cell = key * BYTES[rig.cache_type_k] + value * BYTES[rig.cache_type_v]
        total += cells * per_cell * heads[layer % len(heads)]
    return total / 2**20


def _shape(
    model: Path,
) -> tuple[int, int, list[int], int, list[bool], dict[str, tuple[int, int]]]:
    """Layers, layers sharing KV, KV heads, window, which layers slide, and head sizes."""
    reader = _reader(model)
    arch = str(reader.fields["general.architecture"].contents())

    def value(name: str, default: Any) -> Any:
        field = reader.fields.get(f"{arch}.{name}")
        return default if field is None else field.contents()

    head = value("embedding_length", 0) // max(1, _first(value("attention.head_count", 1)))
    key, val = value("attention.key_length", head), value("attention.value_length", head)
    heads = value("attention.head_count_kv", 1)
    layers = int(value("block_count", 0))
    window = int(value("attention.sliding_window", 0))
    pattern = value("attention.sliding_window_pattern", None)
    if pattern is None:  # Gemma 3 says only the window: five sliding layers, then a full one
        pattern = [layer % 6 != 5 for layer in range(layers)]
    sizes = {
        "full": (key, val),
        "sliding": (
            value("attention.key_length_swa", key),
            value("attention.value_length_swa", val),
        ),
    }
    heads = list(heads) if isinstance(heads, list) else [heads]
    return layers, int(value("attention.shared_kv_layers", 0)), heads, window, pattern, sizes


def _first(value: Any) -> int:
    return int(value[0] if isinstance(value, list) else value)
