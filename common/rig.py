"""Rig: the grammar and meaning of a rig's tpu.env."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import values
from common.errors import RigError, did_you_mean

ROOT = Path(__file__).resolve().parent.parent
FILE = "tpu.env"
NAME = re.compile(r"[a-z0-9]+-[a-z0-9]+-[a-z0-9]+-[a-z0-9]+-[a-z0-9_]+")
LINE = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")
# What reads the same in make, docker compose, bash and Python.
SAFE_VALUE = re.compile(r"[A-Za-z0-9._/:+,=@-]*")
SPEC_TYPES = (
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
)
TUNE_FOR = ("chat", "documents", "many")
TUNE_LEVERS = ("draft", "types", "p-min", "batch", "kv-layout", "kv-type")
ENGINES = ("embedded", "source")
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
Parser = Callable[[str], Any]


def _text(value: str) -> str:
    return value


def _whole(low: int, high: int) -> Parser:
    def parse(value: str) -> int:
        if not re.fullmatch(r"\d+", value) or not low <= int(value) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return parse


def _one_of(*names: str) -> Parser:
    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return value

    return parse


def _some_of(*names: str) -> Parser:
    def parse(value: str) -> tuple[str, ...]:
        parts = tuple(value.split(","))
        if not set(parts) <= set(names):
            raise ValueError(f"some of {', '.join(names)}, joined by commas")
        return parts

    return parse


def _numbers(value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(,\d+)*", value):
        raise ValueError("whole numbers joined by commas, such as 1,2,3")
    return tuple(int(part) for part in value.split(","))


def _shares(value: str) -> tuple[float, ...]:
    try:
        parts = tuple(float(part) for part in value.split(","))
    except ValueError:
        parts = ()
    if not parts or not all(0 < part < 1 for part in parts):
        raise ValueError("shares between 0 and 1 joined by commas, such as 0.5,0.6")
    return parts


def _share(value: str) -> float:
    parts = _shares(value)
    if len(parts) > 1:
        raise ValueError("one share between 0 and 1, such as 0.5")
    return parts[0]


def _list(value: str) -> tuple[str, ...]:
    return tuple(part for part in value.split(",") if part)


def _two(value: str) -> tuple[str, ...]:
    parts = _list(value)
    if len(parts) != 2:
        raise ValueError("two arms joined by a comma, such as none,n=2")
    return parts


def _spec_type(value: str) -> str:
    for part in value.split(","):
        if part not in SPEC_TYPES:
            hint = did_you_mean(part, SPEC_TYPES)
            known = ", ".join(SPEC_TYPES)
            raise ValueError(f"llama.cpp draft types ({known}){hint and '; ' + hint}")
    return value


def _spec_types(value: str) -> tuple[str, ...]:
    return tuple(_spec_type(part.replace("+", ",")) for part in value.split(","))


def _digest(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{16,64}", value):
        raise ValueError("a SHA-256 in lower-case hex, or at least its first 16 digits")
    return value


def needs_drafter(spec_type: str) -> bool:
    """Whether one of these draft types, joined by commas, reads a drafter file."""
    return any(part.startswith("draft-") for part in spec_type.split(","))


_WANTED = object()


def _key(parse: Parser, default: object = _WANTED, *, group: str) -> Any:
    """A tpu.env key. Empty means absent; a key without default must be given.

    group: what it is for: serve (it changes how a model is served), files, build, card, address,
    repack, or the measurement that reads it.
    """
    metadata = {"parse": parse, "group": group}
    if default is _WANTED:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Rig:
    """Every setting of one rig. Field `ctx_size` is the key `CTX_SIZE`, and so on.

    File names are looked up in the models folder unless they are absolute. A setting that is
    absent is None (or an empty tuple).
    """

    folder: Path
    overridden: tuple[str, ...] = ()
    """keys that came from the environment instead of the file"""

    backend: str = _key(_one_of("cuda", "cpu"), group="card")
    gpu_name: str | None = _key(_text, None, group="card")
    """part of the card's name as NVML gives it, with _ for a space"""
    model: str = _key(values.model_file, group="files")
    model_hf: str | None = _key(_text, None, group="files")
    model_hf_revision: str | None = _key(_text, None, group="files")
    model_package: str | None = _key(values.package, None, group="files")
    model_sha256: str | None = _key(_digest, None, group="files")
    spec_type: str | None = _key(_spec_type, None, group="serve")
    spec_draft_model: str | None = _key(values.model_file, None, group="files")
    spec_draft_hf: str | None = _key(_text, None, group="files")
    spec_draft_hf_revision: str | None = _key(_text, None, group="files")
    spec_draft_sha256: str | None = _key(_digest, None, group="files")
    spec_draft_n_max: int | None = _key(_whole(1, 64), None, group="serve")
    spec_draft_p_min: float | None = _key(_share, None, group="serve")
    """a draft ends before a token that the drafter holds less likely than this"""
    spec_synth_rates: tuple[float, ...] = _key(_shares, (), group="serve")
    """for each position of a draft, how often drafts are accepted that far, whatever they say; the
    reply is then not the model's"""
    host: str = _key(_text, "127.0.0.1", group="address")
    port: int = _key(_whole(1, 65535), group="address")
    ctx_size: int = _key(_whole(256, 10_000_000), group="serve")
    threads: int | None = _key(_whole(1, 1024), None, group="serve")
    n_gpu_layers: int | None = _key(_whole(0, 9999), None, group="serve")
    cache_type_k: str = _key(_one_of(*CACHE_TYPES), "f16", group="serve")
    cache_type_v: str = _key(_one_of(*CACHE_TYPES), "f16", group="serve")
    flash_attn: str = _key(_one_of("0", "1", "auto"), "1", group="serve")
    reasoning: str = _key(_one_of("on", "off", "auto"), "off", group="serve")
    chat_template: str = _key(_one_of("own", "none"), "own", group="serve")
    """the model file's own; or none, for a base model: it goes on with the text as it was sent"""
    parallel: int | None = _key(_whole(1, 256), None, group="serve")
    kv_unified: str | None = _key(_one_of("0", "1"), None, group="serve")
    batch_size: int | None = _key(_whole(1, 65536), None, group="serve")
    """tokens handed to the model together, at most (llama-server's -b)"""
    ubatch_size: int | None = _key(_whole(1, 65536), None, group="serve")
    """tokens computed in one pass, at most (llama-server's -ub)"""
    engine: str = _key(_one_of(*ENGINES), "source", group="build")
    """llama.cpp's server out of a package, or compiled here from its source; a container always has
    the engine it was built with"""
    llama_cpp_repository: str = _key(
        values.repository, "https://github.com/ggml-org/llama.cpp", group="build"
    )
    llama_cpp_commit: str | None = _key(values.commit, None, group="build")
    llama_cpp_release: str = _key(values.version, "11434.0.0", group="build")
    llama_cpp_release_sha256: str = _key(
        _digest,
        "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
        group="build",
    )
    cuda_version: str | None = _key(_text, None, group="build")
    cuda_architectures: tuple[str, ...] = _key(_list, (), group="build")
    cmake_extra: tuple[str, ...] = _key(_list, (), group="build")
    builds_engine: str | None = _key(_one_of(*ENGINES), None, group="builds")
    builds_cuda_version: str | None = _key(_text, None, group="builds")
    builds_cuda_architectures: tuple[str, ...] = _key(_list, (), group="builds")
    builds_cmake_extra: tuple[str, ...] = _key(_list, (), group="builds")
    """the other build that `builds` compares with the rig's own; empty: as in the rig's own"""
    speed_n_max: tuple[int, ...] = _key(_numbers, (), group="speed")
    speed_spec_types: tuple[str, ...] = _key(_spec_types, (), group="speed")
    """draft types that `speed` compares; + joins types that work together"""
    longctx_depths: tuple[int, ...] = _key(_numbers, (), group="longctx")
    longctx_n_max: tuple[int, ...] = _key(_numbers, (), group="longctx")
    longctx_ctx_size: int | None = _key(_whole(256, 10_000_000), None, group="longctx")
    longctx_doc: str | None = _key(_text, None, group="longctx")
    longctx_doc_sha256: str | None = _key(_digest, None, group="longctx")
    sweep_parallel: int | None = _key(_whole(1, 256), None, group="sweep")
    sweep_ctx_size: int | None = _key(_whole(256, 10_000_000), None, group="sweep")
    sweep_prompts: tuple[str, ...] = _key(
        _some_of("mixed", "repeat"), ("mixed", "repeat"), group="sweep"
    )
    sweep_loop_s: int | None = _key(_whole(1, 3600), 60, group="sweep")
    """in a closed loop (`sweep`, `longmixed`), no request is sent after so many seconds; empty: no
    closed loop"""
    goodput_ttft_ms: int | None = _key(_whole(1, 3_600_000), 2000, group="load")
    goodput_tpot_ms: int | None = _key(_whole(1, 3_600_000), 200, group="load")
    """goodput counts the requests within these limits, by default MLPerf Inference's (Llama 2 70B,
    server); empty: no limit"""
    stream_gaps: str | None = _key(_one_of("0", "1"), None, group="measure")
    """1: when measuring, the client reads every chunk as it comes, for the gaps between them; this
    costs processor time"""
    longmixed_parallel: int | None = _key(_whole(1, 256), None, group="longmixed")
    longmixed_ctx_size: int | None = _key(_whole(256, 10_000_000), None, group="longmixed")
    accuracy_arms: tuple[str, ...] = _key(_two, (), group="accuracy")
    """the two arms that `accuracy` compares (common/kinds/accuracy/plan.py); empty: none and the
    rig itself"""
    accuracy_parallel: int = _key(_whole(1, 256), 1, group="accuracy")
    """questions asked at once"""
    accuracy_limit: int | None = _key(_whole(1, 1_000_000), None, group="accuracy")
    """only the first so many questions of each test"""
    repack_hf: str | None = _key(_text, None, group="repack")
    """the checkpoint that `repack` makes the drafter of"""
    repack_hf_revision: str | None = _key(_text, None, group="repack")
    formats_extra: tuple[str, ...] = _key(values.model_files, (), group="formats")
    """drafter files that `formats` compares beside the rig's own in three formats"""
    cost_shape: str | None = _key(
        _one_of("e2b", "e4b", "12b", "26b", "31b", "tiny"), None, group="cost"
    )
    """the pair that `cost` measures: a model's layer sizes, or the known-answer pair"""
    cost_accept: tuple[float, ...] = _key(_shares, (0.5, 0.6, 0.7), group="cost")
    """how likely `cost` takes a drafted token to be right, given that those before it were"""

    tune_for: str = _key(_one_of(*TUNE_FOR), "chat", group="tune")
    """the workload that `tune` finds the best setting for"""
    tune_n_max: int = _key(_whole(1, 16), 4, group="tune")
    """the longest draft that `tune` tries"""
    tune_levers: tuple[str, ...] = _key(_some_of(*TUNE_LEVERS), (), group="tune")
    """what `tune` varies, in this order; empty: what suits the rig and workload
    (common/kinds/tune/plan.py)"""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def hardware(self) -> str:
        """The third slot of the name: the card, or cpu."""
        return self.name.split("-")[2]

    @property
    def runs_folder(self) -> Path:
        return self.folder / "benchmarks" / "runs"

    @property
    def url(self) -> str:
        # 0.0.0.0 is where a server in a container listens, not an address to call.
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host  # noqa: S104
        return f"http://{host}:{self.port}"

    @property
    def needs_drafter(self) -> bool:
        """Whether the draft type reads a drafter file (n-gram types need none)."""
        return needs_drafter(self.spec_type or "")

    @property
    def drafts(self) -> bool:
        """Whether this rig drafts at all. An empty SPEC_DRAFT_MODEL means no drafter."""
        if self.spec_type is None:
            return False
        return not self.needs_drafter or self.spec_draft_model is not None

    def settings(self) -> dict[str, str]:
        """Every setting in force, as tpu.env would write it; absent ones are empty."""
        return {key: _written(getattr(self, key.lower())) for key in KEYS}

    def variant(self, changes: Mapping[str, str]) -> "Rig":
        """This rig with some settings changed, written as in tpu.env."""
        found: dict[str, Any] = {}
        for key, value in changes.items():
            found[key.lower()] = _parse_value(key, value, f"a change of {key}")
        return dataclasses.replace(self, **found)


_FIELDS = {field.name.upper(): field for field in dataclasses.fields(Rig) if field.metadata}
KEYS = tuple(_FIELDS)
GROUPS: dict[str, str] = {key: field.metadata["group"] for key, field in _FIELDS.items()}
"""what each key is for"""


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(str(part).replace(",", "+") for part in value)
    return str(value)


def _parse_value(key: str, value: str, where: str) -> object:
    field = _FIELDS[key]
    if values.holds_secret(value):
        # Settings go into manifests and reports, and those into git. Its value is not shown.
        raise RigError(
            f"{where}: {key} holds a user name or token in an address",
            fix="leave it out; git, pip and the hub have places of their own for it",
        )
    if not SAFE_VALUE.fullmatch(value):
        raise RigError(
            f"{where}: {key}={value!r} holds a space, quote or shell character; "
            "values may only use letters, digits and . _ / : + , = @ -"
        )
    if value == "":
        if field.default is dataclasses.MISSING:
            raise RigError(f"{where}: {key} must not be empty")
        return () if isinstance(field.default, tuple) else None
    try:
        return field.metadata["parse"](value)
    except ValueError as error:
        raise RigError(f"{where}: {key}={value}: expected {error}") from None


def read_lines(path: Path) -> dict[str, tuple[str, int]]:
    """Read KEY=value lines and # comments; returns key -> (value, line number).

    Raises RigError for an unknown or duplicate key and for any other kind of line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RigError(f"{path}: cannot be read: {error}") from None
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}, line {number}"
        match = LINE.fullmatch(line)
        if not match:
            raise RigError(f"{where}: {line!r} is not KEY=value and not a # comment")
        key, value = match.groups()
        if key not in _FIELDS:
            raise RigError(f"{where}: unknown key {key}", fix=did_you_mean(key, KEYS))
        if key in found:
            raise RigError(f"{where}: {key} was given already on line {found[key][1]}")
        found[key] = (value, number)
    return found


def load(folder: Path, environ: Mapping[str, str] = os.environ) -> Rig:
    """Read a rig's folder. A variable of the same name in `environ` beats the file.

    Raises RigError naming file, line, key and what was expected.
    """
    folder = folder.resolve()
    path = folder / FILE
    if not path.is_file():
        rigs = ", ".join(sorted(rig.name for rig in all_rigs())) or "none"
        raise RigError(f"{folder} is not a rig: it has no {FILE}. Rigs here: {rigs}")
    lines = read_lines(path)
    values: dict[str, Any] = {}
    overridden = []
    for key, field in _FIELDS.items():
        if key in environ:
            overridden.append(key)
            values[key.lower()] = _parse_value(key, environ[key], f"environment variable {key}")
        elif key in lines:
            value, number = lines[key]
            values[key.lower()] = _parse_value(key, value, f"{path}, line {number}")
        elif field.default is dataclasses.MISSING:
            raise RigError(f"{path}: {key} is missing")
    rig = Rig(folder=folder, overridden=tuple(overridden), **values)
    _check_together(rig, path)
    return rig


def all_rigs() -> list[Path]:
    """The folders of this repository that are rigs."""
    return [path.parent for path in ROOT.glob(f"*/{FILE}")]


def _check_together(rig: Rig, path: Path) -> None:
    """Settings that must agree with each other and with the folder's name."""
    if rig.backend == "cuda" and not rig.gpu_name:
        raise RigError(f"{path}: BACKEND=cuda needs GPU_NAME, the card this rig is for")
    if rig.backend == "cuda" and rig.engine == "embedded":
        raise RigError(f"{path}: ENGINE=embedded runs on the CPU; a card needs ENGINE=source")
    if rig.needs_drafter and rig.spec_draft_n_max is None:
        raise RigError(f"{path}: SPEC_TYPE={rig.spec_type} needs SPEC_DRAFT_N_MAX")
    for claim in name_claims(rig):
        raise RigError(f"{path}: {claim}; rename the folder or mend the setting")


def name_claims(rig: Rig) -> list[str]:
    """What the rig's name claims and its settings deny; empty if they agree."""
    if not NAME.fullmatch(rig.name):
        return [
            f"the folder name {rig.name} is not platform-runtime-hardware-model-encoding "
            "(five slots, lower case)"
        ]
    platform, runtime, hardware, model, encoding = rig.name.split("-")
    file = Path(rig.model).name.lower()
    card = (rig.gpu_name or "").lower().replace("_", "")
    series = re.match(r"[a-z]*\d+", hardware)
    wrong = []
    if platform != "local" or runtime != "llamacpp":
        wrong.append(f"the name says {platform}-{runtime}, only local-llamacpp is known")
    if (hardware == "cpu") != (rig.backend == "cpu"):
        wrong.append(f"the name says {hardware}, BACKEND says {rig.backend}")
    elif hardware != "cpu" and (series is None or series.group() not in card):
        wrong.append(f"the name says {hardware}, GPU_NAME says {rig.gpu_name}")
    if model not in file:
        wrong.append(f"the name says {model}, MODEL says {rig.model}")
    if encoding not in file:
        wrong.append(f"the name says {encoding}, MODEL says {rig.model}")
    return wrong
