"""Memory: what a model takes on a card, part by part, from its files or from its layer sizes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf

from common import files
from common.errors import RigError
from common.rig import Rig
from common.shapes import FULL_HEAD, HEAD, Shape

BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32,
         "q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32}  # fmt: skip
UBATCH = 512
"""tokens that llama.cpp computes at once"""
CELL_STEP = 256
"""llama.cpp rounds the cells of a cache up to a multiple of this"""
DEFAULT_SLOTS = 4
"""what llama-server makes of no -np: so many slots, sharing one cache"""
RUNTIME_MIB = 300.0
"""what CUDA itself takes: its context, the kernels, and room for matrix products"""
HOST_ONLY = ("per_layer_token_embd.weight",)
"""llama.cpp looks up rows of these on the host, so a card does without them"""


@dataclass(frozen=True)
class Layer:
    """A layer that owns a KV cache; keys and values are how many a token adds."""

    slides: bool
    keys: int
    values: int


@dataclass(frozen=True)
class Model:
    """What decides a model's working memory."""

    layers: tuple[Layer, ...]
    window: int
    """tokens that sliding layers look back; 0 where none slides"""
    hidden: int
    feed_forward: int
    """of the widest layer; with experts, of all that a token uses"""
    per_layer: int
    """per-layer embeddings of one token, over all layers; 0 where there are none"""


@dataclass(frozen=True)
class Load:
    """The settings that decide how much memory is taken."""

    ctx_size: int
    slots: int
    unified: bool
    """whether the slots share one cache (-kvu)"""
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: bool = True


@dataclass(frozen=True)
class Need:
    """Card memory in MiB, part by part."""

    weights: float
    cache: float
    drafter: float
    """its weights and its working buffers"""
    buffers: float
    runtime: float

    @property
    def total(self) -> float:
        return self.weights + self.cache + self.drafter + self.buffers + self.runtime

    def parts(self) -> list[tuple[str, float]]:
        """Each part in words, and MiB."""
        return [
            ("weights", self.weights),
            ("KV cache", self.cache),
            ("drafter", self.drafter),
            ("working buffers", self.buffers),
            ("CUDA itself", self.runtime),
        ]


def need_mib(rig: Rig) -> float | None:
    """Memory in MiB that serving the rig takes; None while a file is missing.

    Raises RigError if a file cannot be read.
    """
    found = need(rig)
    return None if found is None else found.total


def need(rig: Rig) -> Need | None:
    """Like need_mib, part by part."""
    wanted = {file.role: file.path for file in files.wanted(rig)}
    if not all(path.is_file() for path in wanted.values()):
        return None
    on_card = rig.backend == "cuda"
    weights = {role: weights_mib(path, on_card) for role, path in wanted.items()}
    models = {role: model_of_file(path) for role, path in wanted.items()}
    found = need_of(
        models["model"], weights["model"], models.get("drafter"), weights.get("drafter", 0.0),
        load_of(rig),
    )  # fmt: skip
    return found if on_card else replace(found, runtime=0.0)


def need_of(
    model: Model, weights: float, drafter: Model | None, drafter_weights: float, load: Load
) -> Need:
    """What a model and its drafter take on a card; their weights are given, in MiB."""
    for_drafter = 0.0
    if drafter is not None:
        for_drafter = drafter_weights + drafter_buffers_mib(drafter, model, load)
        for_drafter += cache_mib(drafter, load)
    return Need(weights, cache_mib(model, load), for_drafter, buffers_mib(model, load), RUNTIME_MIB)


def load_of(rig: Rig) -> Load:
    """How llama-server serves the rig; without PARALLEL it makes slots of its own."""
    return Load(
        rig.ctx_size,
        rig.parallel or DEFAULT_SLOTS,
        rig.parallel is None or rig.kv_unified == "1",
        rig.cache_type_k,
        rig.cache_type_v,
        rig.flash_attn != "0",
    )


def weights_mib(path: Path, on_card: bool) -> float:
    """The weights of one file in MiB; on a card those that it must hold."""
    if not on_card:
        return path.stat().st_size / 2**20
    return held_mib((tensor.name, int(tensor.n_bytes)) for tensor in _reader(path).tensors)


def held_mib(tensors: Iterable[tuple[str, int]]) -> float:
    """MiB of the tensors (name, bytes) that a card holds.

    Per-layer embeddings stay on the host, and so does the token embedding where the output has a
    matrix of its own; where the two are one, the card holds it for the output.
    """
    sizes = dict(tensors)
    left_out = [*HOST_ONLY, *(["token_embd.weight"] if "output.weight" in sizes else [])]
    return sum(size for name, size in sizes.items() if name not in left_out) / 2**20


def kv_mib(rig: Rig, model: Path) -> float:
    """The KV cache of this model file in MiB, as llama-server makes it for the rig."""
    return cache_mib(model_of_file(model), load_of(rig))


def cells(model: Model, load: Load) -> tuple[int, int]:
    """Cells of a full layer's cache and of a sliding layer's, all slots together.

    As in llama.cpp b11434 (llama-context.cpp, llama-kv-cache-iswa.cpp): one cache for all slots
    holds every slot's window and one batch; a cache of its own holds one window and one batch.
    """
    if load.unified:
        full, windows, times = _padded(load.ctx_size), model.window * load.slots, 1
    else:
        each = _padded(load.ctx_size) // load.slots
        full, windows, times = _padded(each), model.window, load.slots
    batch = min(UBATCH, load.ctx_size)
    sliding = _padded(min(full, windows + batch)) if model.window else full
    return full * times, sliding * times


def cache_mib(model: Model, load: Load) -> float:
    """The KV cache in MiB. Without flash attention every layer's values take the widest's room."""
    full, sliding = cells(model, load)
    widest = max((layer.values for layer in model.layers), default=0)
    total = 0.0
    for layer in model.layers:
        values = layer.values if load.flash_attn else widest
        size = layer.keys * BYTES[load.cache_type_k] + values * BYTES[load.cache_type_v]
        total += size * (sliding if layer.slides else full)
    return total / 2**20


def buffers_mib(model: Model, load: Load) -> float:
    """Working buffers for one batch in MiB, an estimate.

    What is alive at once in the widest place: the per-layer inputs three times over, gate and up
    of the feed-forward, a few hidden states; and the masks, a value for each cell and token.
    """
    wide = 3 * model.per_layer + 2 * model.feed_forward + 4 * model.hidden
    return (wide * 4 * UBATCH) / 2**20 + masks_mib(model, load)


def drafter_buffers_mib(drafter: Model, target: Model, load: Load) -> float:
    """The same for the drafter, which reads the target's hidden state and masks its cache."""
    wide = 3 * target.hidden + 2 * drafter.feed_forward + 4 * drafter.hidden
    return (wide * 4 * UBATCH) / 2**20 + masks_mib(target, load)


def masks_mib(model: Model, load: Load) -> float:
    """Which cells each token of a batch may see: f16 with flash attention, else f32."""
    each = 2 if load.flash_attn else 4
    full, sliding = cells(model, load)
    times = 1 if load.unified else load.slots
    seen = full + (sliding if model.window else 0)
    return seen / times * UBATCH * each / 2**20


def model_of_shape(shape: Shape, role: str) -> Model:
    """The target or drafter of a shape. A drafter reads the target's cache and owns none."""
    if role == "drafter":
        return Model((), shape.window, shape.drafter_hidden, shape.drafter_feed_forward, 0)
    layers = []
    for number in range(shape.layers):
        if shape.owns_kv(number):
            slides = shape.is_sliding(number)
            count = shape.kv_heads_of(number) * (HEAD if slides else FULL_HEAD)
            layers.append(Layer(slides, count, count))
    wide = max(shape.feed_forward_of(number) for number in range(shape.layers))
    wide += shape.experts_used * shape.expert_feed_forward
    per_layer = shape.layers * shape.per_layer_embedding
    return Model(tuple(layers), shape.window, shape.hidden, wide, per_layer)


def model_of_file(path: Path) -> Model:
    """The same from a GGUF file's settings. Raises RigError if it cannot be read."""
    reader = _reader(path)
    arch = str(reader.fields["general.architecture"].contents())

    def value(name: str, default: Any) -> Any:
        field = reader.fields.get(f"{arch}.{name}")
        return default if field is None else field.contents()

    count, hidden = int(value("block_count", 0)), int(value("embedding_length", 0))
    window = int(value("attention.sliding_window", 0))
    pattern = value("attention.sliding_window_pattern", None)
    if pattern is None:  # Gemma 3 says only the window: five sliding layers, then a full one
        pattern = [layer % 6 != 5 for layer in range(count)]
    head = hidden // max(1, _each(value("attention.head_count", 1), count)[0])
    heads = _each(value("attention.head_count_kv", 1), count)
    key = value("attention.key_length", head)
    val = value("attention.value_length", head)
    sliding_key = value("attention.key_length_swa", key)
    sliding_val = value("attention.value_length_swa", val)
    # An assistant drafter reads the cache of its target.
    shared = int(value("attention.shared_kv_layers", 0))
    owning = 0 if arch == "gemma4-assistant" else count - shared
    layers = []
    for number in range(owning):
        slides = bool(window) and number < len(pattern) and bool(pattern[number])
        keys, values = (sliding_key, sliding_val) if slides else (key, val)
        layers.append(Layer(slides, heads[number] * keys, heads[number] * values))
    wide = max(_each(value("feed_forward_length", 0), count), default=0)
    wide += int(value("expert_used_count", 0)) * int(value("expert_feed_forward_length", 0))
    per_layer = count * int(value("embedding_length_per_layer_input", 0))
    return Model(tuple(layers), window, hidden, wide, per_layer)


def _reader(path: Path) -> Any:
    try:
        return gguf.GGUFReader(path)
    except (OSError, ValueError, IndexError) as error:
        raise RigError(f"{path} is not a readable GGUF file: {error}; fetch it again") from None


def _each(value: Any, count: int) -> Sequence[int]:
    """One number a layer, of a setting that is a number or a list."""
    return [int(each) for each in value] if isinstance(value, list) else [int(value)] * count


def _padded(count: int) -> int:
    return -(-count // CELL_STEP) * CELL_STEP
