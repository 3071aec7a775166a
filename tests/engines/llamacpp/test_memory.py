"""Memory: the KV cache as llama-server makes it, and the parts of an estimate."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from common import places, rig
from common.engines.llamacpp import memory
from common.engines.llamacpp.build import Engine
from common.engines.llamacpp.memory import Layer, Load, Model
from common.rig import ROOT, Rig
from common.serving.process import Server
from common.weights.gguf_file import open_gguf
from common.weights.random_pair import size_of, write_gguf
from common.weights.shapes import SHAPES
from tests.weights.test_random_pair import SMALL

REAL = "local-llamacpp-cpu-270m-q4_k_m"
LAYOUTS = {
    "as served": {},
    "apart": {"PARALLEL": "4", "KV_UNIFIED": "0"},
    "shared": {"PARALLEL": "4", "KV_UNIFIED": "1"},
    "one slot": {"PARALLEL": "1"},
}


# What sets the sizes of Gemma 4 apart, on a small shape.
LIKE_E4B = {
    "layers": 12,
    "full_every": 6,
    "kv_shared_layers": 6,
    "heads": 4,
    "kv_heads": 2,
    "drafter_layers": 4,
    "drafter_heads": 4,
}
LARGE = {
    **LIKE_E4B,
    "kv_shared_layers": 0,
    "kv_heads": 4,
    "full_kv_heads": 2,
    "keys_are_values": True,
    "window": 1024,
    "per_layer_embedding": 0,
}
KINDS: dict[str, dict[str, int]] = {
    "like E4B": LIKE_E4B,
    "like 31B": LARGE,
    "like 26B-A4B": {**LARGE, "experts": 8, "experts_used": 2, "expert_feed_forward": 32},
}


def logged(of: Rig, engine: Engine, log: Path) -> tuple[float, float]:
    """MiB of KV cache and of working buffers in llama-server's own log, without a drafter."""
    with Server(of.variant({"SPEC_TYPE": "", "SPEC_DRAFT_MODEL": ""}), engine, log):
        pass
    text = log.read_text()
    caches = [float(mib) for mib in re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", text)]
    buffers = [float(mib) for mib in re.findall(r"compute buffer size = +([\d.]+) MiB", text)]
    assert len(caches) == 2, text
    return sum(caches), max(buffers)


def cache_of(of: Rig) -> float:
    """The KV cache in MiB as we count it."""
    need = memory.need(of)
    assert need is not None
    return need.cache


@pytest.mark.engine
@pytest.mark.parametrize("ctx_size", [3000, 16384])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_kv_cache_of_the_tiny_pair_is_the_servers(
    tiny: Rig, real_engine: Engine, tmp_path: Path, ctx_size: int, layout: str
) -> None:
    of = tiny.variant({"CTX_SIZE": str(ctx_size), **LAYOUTS[layout]})
    path = places.model_file(of.model)
    cache, buffers = logged(of, real_engine, tmp_path / "server.log")
    assert cache_of(of) == pytest.approx(cache, abs=0.011)  # two figures to 0.01
    ours = memory.buffers_mib(memory.model_of_file(open_gguf(path)), memory.load_of(of))
    assert -1 < ours - buffers < 25


@pytest.mark.engine
@pytest.mark.parametrize(
    "changes",
    [
        {"CACHE_TYPE_K": "q8_0", "CACHE_TYPE_V": "q8_0"},
        {"FLASH_ATTN": "0", "CACHE_TYPE_K": "f32"},
        {"UBATCH_SIZE": "128"},
    ],
)
def test_kv_cache_of_other_settings(
    tiny: Rig, real_engine: Engine, tmp_path: Path, changes: dict[str, str]
) -> None:
    of = tiny.variant({"PARALLEL": "2", **changes})
    cache, _buffers = logged(of, real_engine, tmp_path / "server.log")
    assert cache_of(of) == pytest.approx(cache, abs=0.011)


@pytest.mark.engine
@pytest.mark.usefixtures("users_cache")
@pytest.mark.parametrize("ctx_size", [3000, 16384])
@pytest.mark.parametrize("layout", ["apart", "shared"])
def test_kv_cache_of_gemma_3_is_the_servers(
    tiny: Rig,
    real_engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ctx_size: int,
    layout: str,
) -> None:
    """Another family: it says no pattern, and some of its layers slide."""
    monkeypatch.delenv("MODELS_DIR")
    path = places.model_file(rig.load(ROOT / REAL, {}).model)
    if not path.is_file():
        pytest.skip(f"the model is not here; make -C {REAL} model fetches it")
    of = tiny.variant({"MODEL": str(path), "CTX_SIZE": str(ctx_size), **LAYOUTS[layout]})
    cache, buffers = logged(of, real_engine, tmp_path / "server.log")
    assert cache_of(of) == pytest.approx(cache, abs=0.011)
    ours = memory.buffers_mib(memory.model_of_file(open_gguf(path)), memory.load_of(of))
    assert -1 < ours - buffers < 25


@pytest.mark.engine
@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_every_kind_of_size_is_served_with_its_drafter(
    tiny: Rig, real_engine: Engine, tmp_path: Path, changes: dict[str, int]
) -> None:
    """Random weights: the server takes them for Gemma 4, drafts, and its cache is ours."""
    shape = replace(SMALL, **changes)  # type: ignore[arg-type]
    paths = [tmp_path / f"{role}.gguf" for role in ("target", "drafter")]
    for role, path in zip(("target", "drafter"), paths, strict=True):
        write_gguf(path, shape, role, "q4_0", 1, lambda _: None)
    of = tiny.variant({"MODEL": str(paths[0]), "SPEC_DRAFT_MODEL": str(paths[1]), "PARALLEL": "2"})
    with Server(of, real_engine, tmp_path / "server.log") as server:
        assert server.check is not None
        assert server.check.draft_n
    cache, _buffers = logged(of, real_engine, tmp_path / "alone.log")
    assert cache_of(of) == pytest.approx(cache, abs=0.011)


@pytest.mark.parametrize("role", ["target", "drafter"])
@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_a_file_and_its_layer_sizes_say_the_same(
    tmp_path: Path, role: str, changes: dict[str, int]
) -> None:
    shape = replace(SMALL, **changes)  # type: ignore[arg-type]
    path = tmp_path / "model.gguf"
    write_gguf(path, shape, role, "q4_0", 1, lambda _: None)
    assert memory.model_of_file(open_gguf(path)) == memory.model_of_shape(shape, role)
    every = size_of(shape, role, "q4_0") / 2**20
    left_out = shape.per_layer_embedding if role == "target" else 0
    host = shape.vocabulary * left_out * shape.layers * 18 / 32 / 2**20
    assert memory.weights_mib(open_gguf(path), on_card=True) == pytest.approx(every - host)


@pytest.mark.parametrize(
    ("name", "kib"), [("e2b", 6), ("e4b", 16), ("12b", 16), ("26b", 20), ("31b", 80)]
)
def test_growth_a_token(name: str, kib: int) -> None:
    """Published for E2B and E4B; for the others two f16 values for each head's 512, each layer."""
    model = memory.model_of_shape(SHAPES[name], "target")
    low, high = (memory.cache_mib(model, Load(ctx, 1, False)) for ctx in (8192, 16384))
    assert high - low == kib * 8192 / 1024


def test_windows_of_slots_by_hand() -> None:
    """10 sliding layers of one value, window 512: one cache holds all windows and one batch."""
    model = Model((Layer(True, 1, 1),) * 10, 512, 8, 8, 0)
    assert memory.cells(model, Load(65536, 8, True))[1] == 8 * 512 + 512
    assert memory.cells(model, Load(65536, 8, False))[1] == 8 * (512 + 512)
    # a slot shorter than its window needs no more cells than it has, rounded up to 256
    assert memory.cells(model, Load(8 * 300, 8, False)) == (8 * 512, 8 * 512)
    assert memory.cache_mib(model, Load(65536, 8, True)) == 10 * 4608 * 2 * 2 / 2**20


def test_the_output_matrix_leaves_the_embedding_on_the_host() -> None:
    embedding, rows = ("token_embd.weight", 2**20), ("per_layer_token_embd.weight", 2**20)
    assert memory.held_mib([embedding, rows]) == 1
    assert memory.held_mib([embedding, rows, ("output.weight", 2**21)]) == 2


def test_the_drafter_costs_what_the_study_saw() -> None:
    """72 to 84 MiB of card memory on both cards, at a context of 8192."""
    for name in ("e2b", "e4b"):
        shape = SHAPES[name]
        small = memory.model_of_shape(shape, "drafter")
        model = memory.model_of_shape(shape, "target")
        weights = size_of(shape, "drafter", "q4_0") / 2**20
        need = memory.need_of(model, 0.0, small, weights, Load(8192, 1, False))
        assert 60 < need.drafter < 90


def test_parts_add_up(tiny: Rig) -> None:
    found = memory.need(tiny)
    assert found is not None
    assert found.runtime == 0  # no card
    assert sum(mib for _part, mib in found.parts()) == pytest.approx(found.total)
    assert memory.need_mib(tiny) == found.total
    alone = memory.need(tiny.variant({"SPEC_DRAFT_MODEL": ""}))
    assert alone is not None
    assert (alone.drafter, found.drafter > 0) == (0, True)
