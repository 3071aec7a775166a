"""Small models for tests, written with the packages that others use, not with our own writers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from safetensors import TensorSpec, serialize_file

from common.weights import q4_0
from common.weights.tensor_names import gguf_name

Array = npt.NDArray[np.float32]


def on_grid(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Random bf16 values on a 4-bit grid, [rows, columns]."""
    groups = rows * columns // 32
    levels = rng.integers(-8, 8, (groups, 32)).astype(np.float32)
    steps = rng.uniform(0.001, 0.1, (groups, 1)).astype(np.float32)
    return q4_0.widen(q4_0.round_to_bf16(levels * steps)).reshape(rows, columns)


def weights(seed: int = 0) -> dict[str, Array]:
    """A few tensors of a drafter, by a checkpoint's names."""
    rng = np.random.default_rng(seed)
    norm = q4_0.widen(q4_0.round_to_bf16(rng.normal(1, 0.1, 64).astype(np.float32)))
    return {
        "model.embed_tokens.weight": on_grid(rng, 48, 64),
        "model.layers.0.mlp.up_proj.weight": on_grid(rng, 32, 64),
        "model.layers.0.mlp.down_proj.weight": on_grid(rng, 64, 32),
        "model.norm.weight": norm,
        "model.layers.0.layer_scalar": np.array([0.5], np.float32),
    }


def write_snapshot(
    folder: Path,
    tensors: Mapping[str, Array],
    dtype: str = "bfloat16",
    name: str = "model.safetensors",
) -> Path:
    """A checkpoint of one file; dtype bfloat16, float16 or float32. Returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    raws: dict[str, npt.NDArray[Any]] = {}
    for key, values in tensors.items():
        with np.errstate(over="ignore"):
            forms = {"float16": values.astype(np.float16), "float32": values.copy()}
        raws[key] = q4_0.round_to_bf16(values) if dtype == "bfloat16" else forms[dtype]
    entries = {
        key: TensorSpec(dtype=dtype, shape=raw.shape, data_ptr=raw.ctypes.data, data_len=raw.nbytes)
        for key, raw in raws.items()
    }
    serialize_file(entries, folder / name)
    return folder


def write_q8_0(
    path: Path,
    tensors: Mapping[str, Array],
    arch: str = "gemma4-assistant",
    file_type: int = gguf.LlamaFileType.MOSTLY_Q8_0,
) -> Path:
    """What the converter would write: Q8_0 matrices (f16 where rows do not fit), f32 vectors."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("small model")
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_token_list([f"w{number}".encode() for number in range(48)])
    writer.add_bool("some.flag", True)
    writer.add_array("some.numbers", [1, 2, 3])
    for key, values in tensors.items():
        name = gguf_name(key)
        assert name is not None
        kind = gguf.GGMLQuantizationType.F32
        if values.ndim == 2:
            fits = values.shape[1] % 32 == 0
            kind = gguf.GGMLQuantizationType.Q8_0 if fits else gguf.GGMLQuantizationType.F16
        with np.errstate(all="ignore"):
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("rope_freqs.weight", np.array([1, 1e30], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
