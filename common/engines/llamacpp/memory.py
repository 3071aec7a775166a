"""Memory: what a model takes on a card, part by part, from its files or from its layer sizes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from common.errors import RigError, disk_says, shown
from common.files import wanted as files
from common.rig import Rig
from common.weights.gguf_file import GgufFile, open_gguf
from common.weights.shapes import FULL_HEAD, HEAD, Shape

BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
UBATCH = 512
"""tokens that llama.cpp computes at once where UBATCH_SIZE says nothing"""
CELL_STEP = 256
"""llama.cpp rounds the cells of a cache up to a multiple of this"""
DEFAULT_SLOTS = 4
"""what llama-server makes of no -np: so many slots, sharing one cache"""
RUNTIME_MIB = 300.0
"""what CUDA itself takes: its context, the kernels, and room for matrix products"""
MOST_LAYERS = 1000
"""twice what llama.cpp allows (LLAMA_MAX_LAYERS)"""
MOST_VALUES = 2**40
SLIDING = "attention.sliding_window"
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
    wide: int
    """values of a token that are alive at once in the widest feed-forward"""
    per_layer: int
    """per-layer embeddings of a token, over all layers; 0 where there are none"""


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
    ubatch: int = UBATCH
    """tokens computed at once"""


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

    Raises RigError if a file is no GGUF or cut short.
    """
    found = need(rig)
    return None if found is None else found.total


def need(rig: Rig) -> Need | None:
    """Like need_mib, part by part."""
    wanted = {file.role: file.path for file in files.wanted(rig)}
    if not all(path.is_file() for path in wanted.values()):
        return None
    on_card = rig.backend == "cuda"
    opened = {role: open_gguf(path) for role, path in wanted.items()}
    weights = {role: weights_mib(file, on_card) for role, file in opened.items()}
    models = {role: model_of_file(file) for role, file in opened.items()}
    found = need_of(
        models["model"],
        weights["model"],
        models.get("drafter"),
        weights.get("drafter", 0.0),
        load_of(rig),
    )
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
        min(rig.ubatch_size or UBATCH, rig.batch_size or rig.ctx_size),
    )


def weights_mib(file: GgufFile, on_card: bool) -> float:
    """The weights of one file in MiB; on a card those that it must hold."""
    if not on_card:
        with disk_says(file.path, "fetch it again"):
            return file.path.stat().st_size / 2**20
    return held_mib((tensor.name, tensor.nbytes) for tensor in file.tensors)


def held_mib(tensors: Iterable[tuple[str, int]]) -> float:
    """MiB of the tensors (name, bytes) that a card holds.

    Per-layer embeddings stay on the host, and so does the token embedding where the output has a
    matrix of its own; where the two are one, the card holds it for the output.
    """
    sizes = dict(tensors)
    left_out = [*HOST_ONLY, *(["token_embd.weight"] if "output.weight" in sizes else [])]
    return sum(size for name, size in sizes.items() if name not in left_out) / 2**20


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
    batch = min(load.ubatch, load.ctx_size)
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
    """Working buffers for one batch in MiB.

    An estimate: values of each token that are alive at once (per-layer inputs twice, nine hidden
    states, the widest feed-forward), in f32, and the masks. It was fitted to what llama.cpp's own
    fit tool says of the five sizes; docs/METHOD.md says how far off it is.
    """
    values = 2 * model.per_layer + 9 * model.hidden + model.wide
    return _batch_mib(values, load) + masks_mib(model, load)


def drafter_buffers_mib(drafter: Model, target: Model, load: Load) -> float:
    """The same for the drafter, which begins with five of the target's hidden states."""
    later = target.hidden + 9 * drafter.hidden + drafter.wide
    return _batch_mib(max(5 * target.hidden, later), load) + masks_mib(target, load)


def _batch_mib(values: int, load: Load) -> float:
    return values * load.ubatch * BYTES["f32"] / 2**20


def wide_of(hidden: int, feed_forward: int, experts_used: int, expert_feed_forward: int) -> int:
    """Gate and up of a feed-forward; or what the experts that a token uses hold and put out."""
    return max(2 * feed_forward, experts_used * (hidden + expert_feed_forward))


def masks_mib(model: Model, load: Load) -> float:
    """Which cells each token of a batch may see: f16 with flash attention, else f32."""
    each = 2 if load.flash_attn else 4
    full, sliding = cells(model, load)
    times = 1 if load.unified else load.slots
    seen = full + (sliding if model.window else 0)
    return seen / times * load.ubatch * each / 2**20


def model_of_shape(shape: Shape, role: str) -> Model:
    """The target or drafter of a shape. A drafter reads the target's cache and owns none."""
    if role == "drafter":
        hidden, wide = shape.drafter_hidden, 2 * shape.drafter_feed_forward
        return Model((), shape.window, hidden, wide, 0)
    layers = []
    for number in range(shape.layers):
        if shape.owns_kv(number):
            slides = shape.is_sliding(number)
            count = shape.kv_heads_of(number) * (HEAD if slides else FULL_HEAD)
            layers.append(Layer(slides, count, count))
    widest = max(shape.feed_forward_of(number) for number in range(shape.layers))
    wide = wide_of(shape.hidden, widest, shape.experts_used, shape.expert_feed_forward)
    per_layer = shape.layers * shape.per_layer_embedding
    return Model(tuple(layers), shape.window, shape.hidden, wide, per_layer)


def model_of_file(file: GgufFile) -> Model:
    """The same from a GGUF file's settings. Raises RigError where they make no model."""
    arch = file.value("general.architecture")

    def counts(name: str) -> tuple[int, ...]:
        key = f"{arch}.{name}"
        return tuple(_count(file, key, number) for number in file.numbers(key))

    def each(name: str, default: int = 0) -> Sequence[int]:
        """The numbers of a setting, one a layer even where it is the same for all."""
        numbers = counts(name) or (default,)
        if len(numbers) == 1:
            return numbers * count
        if len(numbers) < count:
            raise _makes_no_model(file, f"{arch}.{name} has {len(numbers)} numbers for {count}")
        return numbers

    def one(name: str, default: int = 0) -> int:
        return (counts(name) or (default,))[0]

    count, hidden, window = one("block_count"), one("embedding_length"), one(SLIDING)
    if count > MOST_LAYERS:
        raise _makes_no_model(file, f"{arch}.block_count is {count}")
    # Gemma 3 says only the window: five sliding layers, then a full one.
    pattern = file.numbers(f"{arch}.{SLIDING}_pattern")
    pattern = pattern or tuple(layer % 6 != 5 for layer in range(count))
    head = hidden // max(1, one("attention.head_count", 1))
    key = one("attention.key_length", head)
    value = one("attention.value_length", head)
    sliding = one("attention.key_length_swa", key), one("attention.value_length_swa", value)
    # An assistant drafter reads the cache of its target.
    shared = count if arch == "gemma4-assistant" else one("attention.shared_kv_layers")
    heads = each("attention.head_count_kv", 1)
    layers = []
    for number in range(count - shared):
        slides = bool(window) and number < len(pattern) and bool(pattern[number])
        keys, values = sliding if slides else (key, value)
        layers.append(Layer(slides, heads[number] * keys, heads[number] * values))
    wide = wide_of(
        hidden,
        max(each("feed_forward_length"), default=0),
        one("expert_used_count"),
        one("expert_feed_forward_length"),
    )
    per_layer = count * one("embedding_length_per_layer_input")
    return Model(tuple(layers), window, hidden, wide, per_layer)


def _count(file: GgufFile, key: str, number: int | float) -> int:
    if not 0 <= number <= MOST_VALUES:  # nor is NaN
        raise _makes_no_model(file, f"{key} is {number}")
    return int(number)


def _makes_no_model(file: GgufFile, what: str) -> RigError:
    return RigError(f"{file.path} describes no model: {shown(what)}", fix="fetch it again")


def _padded(count: int) -> int:
    return -(-count // CELL_STEP) * CELL_STEP
