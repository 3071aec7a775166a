"""Rig: what the settings in a rig's tpu.env mean."""

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import grammar, values
from common.errors import RigError, did_you_mean

ROOT = Path(__file__).resolve().parent.parent
FILE = "tpu.env"
NAME = re.compile(r"[a-z0-9]+-[a-z0-9]+-[a-z0-9]+-[a-z0-9]+-[a-z0-9_]+")


def needs_drafter(spec_type: str) -> bool:
    """Whether one of these draft types, joined by commas, reads a drafter file."""
    return any(part.startswith("draft-") for part in spec_type.split(","))


_WANTED = object()


def _key(parse: grammar.Parser, default: object = _WANTED, *, group: str) -> Any:
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
    changed: tuple[str, ...] = ()
    """those of them whose value in the file is another"""
    unheeded: tuple[str, ...] = ()
    """what the environment holds under a key's name and is no setting, such as HOST=my-laptop"""

    backend: str = _key(grammar.one_of("cuda", "cpu"), group="card")
    gpu_name: str | None = _key(grammar.plain, None, group="card")
    """part of the card's name as NVML gives it, with _ for a space"""
    model: str = _key(values.model_file, group="files")
    model_hf: str | None = _key(grammar.plain, None, group="files")
    model_hf_revision: str | None = _key(grammar.plain, None, group="files")
    model_package: str | None = _key(values.package, None, group="files")
    model_sha256: str | None = _key(grammar.digest, None, group="files")
    spec_type: str | None = _key(grammar.spec_type, None, group="serve")
    spec_draft_model: str | None = _key(values.model_file, None, group="files")
    spec_draft_hf: str | None = _key(grammar.plain, None, group="files")
    spec_draft_hf_revision: str | None = _key(grammar.plain, None, group="files")
    spec_draft_sha256: str | None = _key(grammar.digest, None, group="files")
    spec_draft_n_max: int | None = _key(grammar.whole(1, 64), None, group="serve")
    spec_draft_p_min: float | None = _key(grammar.share, None, group="serve")
    """a draft ends before a token that the drafter holds less likely than this"""
    spec_synth_rates: tuple[float, ...] = _key(grammar.shares, (), group="serve")
    """for each position of a draft, how often drafts are accepted that far, whatever they say; the
    reply is then not the model's"""
    host: str = _key(grammar.address, "127.0.0.1", group="address")
    port: int = _key(grammar.whole(1, 65535), group="address")
    cors_origins: str = _key(grammar.origin, "localhost", group="address")
    """whose web pages may read replies: those of this host, or of one origin"""
    ctx_size: int = _key(grammar.whole(256, 10_000_000), group="serve")
    threads: int | None = _key(grammar.whole(1, 1024), None, group="serve")
    n_gpu_layers: int | None = _key(grammar.whole(0, 9999), None, group="serve")
    cache_type_k: str = _key(grammar.one_of(*grammar.CACHE_TYPES), "f16", group="serve")
    cache_type_v: str = _key(grammar.one_of(*grammar.CACHE_TYPES), "f16", group="serve")
    flash_attn: str = _key(grammar.one_of("0", "1", "auto"), "1", group="serve")
    reasoning: str = _key(grammar.one_of("on", "off", "auto"), "off", group="serve")
    chat_template: str = _key(grammar.one_of("own", "none"), "own", group="serve")
    """the model file's own; or none, for a base model: it goes on with the text as it was sent"""
    parallel: int | None = _key(grammar.whole(1, 256), None, group="serve")
    kv_unified: str | None = _key(grammar.one_of("0", "1"), None, group="serve")
    batch_size: int | None = _key(grammar.whole(1, 65536), None, group="serve")
    """tokens handed to the model together, at most (llama-server's -b)"""
    ubatch_size: int | None = _key(grammar.whole(1, 65536), None, group="serve")
    """tokens computed in one pass, at most (llama-server's -ub)"""
    engine: str = _key(grammar.one_of(*grammar.ENGINES), "source", group="build")
    """llama.cpp's server out of a package, or compiled here from its source; a container always has
    the engine it was built with"""
    llama_cpp_repository: str = _key(
        values.repository, "https://github.com/ggml-org/llama.cpp", group="build"
    )
    llama_cpp_commit: str | None = _key(values.commit, None, group="build")
    llama_cpp_release: str = _key(values.version, "11434.0.0", group="build")
    llama_cpp_release_sha256: str = _key(
        grammar.digest,
        "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
        group="build",
    )
    cuda_version: str | None = _key(grammar.version, None, group="build")
    cuda_architectures: tuple[str, ...] = _key(grammar.listed, (), group="build")
    cmake_extra: tuple[str, ...] = _key(grammar.listed, (), group="build")
    builds_engine: str | None = _key(grammar.one_of(*grammar.ENGINES), None, group="builds")
    builds_cuda_version: str | None = _key(grammar.version, None, group="builds")
    builds_cuda_architectures: tuple[str, ...] = _key(grammar.listed, (), group="builds")
    builds_cmake_extra: tuple[str, ...] = _key(grammar.listed, (), group="builds")
    """the other build that `builds` compares with the rig's own; empty: as in the rig's own"""
    speed_n_max: tuple[int, ...] = _key(grammar.numbers, (), group="speed")
    speed_spec_types: tuple[str, ...] = _key(grammar.spec_types, (), group="speed")
    """draft types that `speed` compares; + joins types that work together"""
    longctx_depths: tuple[int, ...] = _key(grammar.numbers, (), group="longctx")
    longctx_n_max: tuple[int, ...] = _key(grammar.numbers, (), group="longctx")
    longctx_ctx_size: int | None = _key(grammar.whole(256, 10_000_000), None, group="longctx")
    longctx_doc: str | None = _key(grammar.plain, None, group="longctx")
    longctx_doc_sha256: str | None = _key(grammar.digest, None, group="longctx")
    sweep_parallel: int | None = _key(grammar.whole(1, 256), None, group="sweep")
    sweep_ctx_size: int | None = _key(grammar.whole(256, 10_000_000), None, group="sweep")
    sweep_prompts: tuple[str, ...] = _key(
        grammar.some_of("mixed", "repeat"), ("mixed", "repeat"), group="sweep"
    )
    sweep_loop_s: int = _key(grammar.whole(0, 3600), 60, group="sweep")
    """in a closed loop (`sweep`, `longmixed`), no request is sent after so many seconds; 0: no
    closed loop"""
    goodput_ttft_ms: int = _key(grammar.whole(0, 3_600_000), 2000, group="load")
    goodput_tpot_ms: int = _key(grammar.whole(0, 3_600_000), 200, group="load")
    """goodput counts the requests within these limits, by default MLPerf Inference's (Llama 2 70B,
    server); 0: no limit"""
    stream_gaps: str = _key(grammar.one_of("0", "1"), "0", group="measure")
    """1: when measuring, the client reads every chunk as it comes, for the gaps between them; this
    costs processor time"""
    longmixed_parallel: int | None = _key(grammar.whole(1, 256), None, group="longmixed")
    longmixed_ctx_size: int | None = _key(grammar.whole(256, 10_000_000), None, group="longmixed")
    accuracy_arms: tuple[str, ...] = _key(grammar.two, (), group="accuracy")
    """the two arms that `accuracy` compares (common/kinds/accuracy/plan.py); empty: none and the
    rig itself"""
    accuracy_parallel: int = _key(grammar.whole(1, 256), 1, group="accuracy")
    """questions asked at once"""
    accuracy_limit: int | None = _key(grammar.whole(1, 1_000_000), None, group="accuracy")
    """only the first so many questions of each test"""
    repack_hf: str | None = _key(grammar.plain, None, group="repack")
    """the checkpoint that `repack` makes the drafter of"""
    repack_hf_revision: str | None = _key(grammar.plain, None, group="repack")
    formats_extra: tuple[str, ...] = _key(values.model_files, (), group="formats")
    """drafter files that `formats` compares beside the rig's own in three formats"""
    cost_shape: str | None = _key(
        grammar.one_of("e2b", "e4b", "12b", "26b", "31b", "tiny"), None, group="cost"
    )
    """the pair that `cost` measures: a model's layer sizes, or the known-answer pair"""
    cost_accept: tuple[float, ...] = _key(grammar.shares, (0.5, 0.6, 0.7), group="cost")
    """how likely `cost` takes a drafted token to be right, given that those before it were"""

    tune_for: str = _key(grammar.one_of(*grammar.TUNE_FOR), "chat", group="tune")
    """the workload that `tune` finds the best setting for"""
    tune_n_max: int = _key(grammar.whole(1, 16), 4, group="tune")
    """the longest draft that `tune` tries"""
    tune_levers: tuple[str, ...] = _key(grammar.some_of(*grammar.TUNE_LEVERS), (), group="tune")
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
        # Where a server listens on every address, as in a container, is no address to call.
        every = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
        host = every.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

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

    def from_outside(self) -> list[str]:
        """What the environment changed, and what it holds that is not taken; a line each."""
        said = []
        if self.changed:
            changed = ", ".join(f"{key}={self.settings()[key]}" for key in self.changed)
            said.append(f"from the environment, not from tpu.env: {changed}")
        if self.unheeded:
            said.append(
                f"in the environment, but no address, so not taken: {', '.join(self.unheeded)}"
            )
        return said

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
WANTED = tuple(key for key, field in _FIELDS.items() if field.default is dataclasses.MISSING)
"""keys without a default"""


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(str(part).replace(",", "+") for part in value)
    return str(value)


DEFAULTS = {key: _written(field.default) for key, field in _FIELDS.items() if key not in WANTED}
"""of every other key, as tpu.env would write it"""


def _parse_value(key: str, value: str, where: str) -> object:
    """A value as the rig has it; empty is absent, so it is the key's default."""
    if values.holds_secret(value):
        # Settings go into manifests and reports, and those into git. Its value is not shown.
        raise RigError(
            f"{where}: {key} holds a user name or token in an address",
            fix="leave it out; git, pip and the hub have places of their own for it",
        )
    grammar.check_safe(key, value, where)
    if value == "":
        if key in WANTED:
            raise RigError(f"{where}: {key} must not be empty")
        return _FIELDS[key].default
    try:
        return _FIELDS[key].metadata["parse"](value)
    except ValueError as error:
        raise RigError(f"{where}: {key}={value}: expected {error}") from None


def read_lines(path: Path) -> dict[str, tuple[str, int]]:
    """Read KEY=value lines and # comments; returns key -> (value, line number).

    Raises RigError for an unknown or duplicate key and for any other kind of line.
    """
    found: dict[str, tuple[str, int]] = {}
    for key, value, number in grammar.settings(path):
        where = f"{path}, line {number}"
        if key not in _FIELDS:
            raise RigError(f"{where}: unknown key {key}", fix=did_you_mean(key, KEYS))
        if key in found:
            raise RigError(f"{where}: {key} was given already on line {found[key][1]}")
        grammar.check_safe(key, value, where)
        found[key] = (value, number)
    return found


def load(folder: Path, environ: Mapping[str, str] = os.environ) -> Rig:
    """Read a rig's folder. A variable of the same name in `environ` beats the file; an empty one
    is the key's default, or the file's value where there is none.

    Raises RigError naming file, line, key and what was expected.
    """
    folder = folder.resolve()
    path = folder / FILE
    if not path.is_file():
        rigs = ", ".join(sorted(rig.name for rig in all_rigs())) or "none"
        raise RigError(f"{folder} is not a rig: it has no {FILE}. Rigs here: {rigs}")
    values = _in_file(path)
    given, unheeded = _in_environment(environ)
    changed = [key for key, value in given.items() if values.get(key) != value]
    values.update(given)
    for key in _FIELDS:
        if key not in values and key in WANTED:
            raise RigError(f"{path}: {key} is missing")
    named = {key.lower(): value for key, value in values.items()}
    rig = Rig(
        folder=folder,
        overridden=tuple(given),
        changed=tuple(changed),
        unheeded=unheeded,
        **named,
    )
    _check_together(rig, path)
    return rig


def _in_file(path: Path) -> dict[str, Any]:
    """Every key with its value in a tpu.env, or its default; a wanted one may be missing."""
    lines = read_lines(path)
    values = {key: _FIELDS[key].default for key in KEYS if key not in WANTED}
    for key, (value, number) in lines.items():
        values[key] = _parse_value(key, value, f"{path}, line {number}")
    return values


def _in_environment(environ: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Every key with its value in the environment, and what is none although it bears its name."""
    values: dict[str, Any] = {}
    unheeded = []
    for key in KEYS:
        value = environ.get(key)
        if value is None or (value == "" and key in WANTED):
            continue
        try:
            values[key] = _parse_value(key, value, f"environment variable {key}")
        except RigError:
            if key != "HOST":  # tcsh and conda's compilers export a name of their own
                raise
            unheeded.append(f"{key}={value}")
    return values, tuple(unheeded)


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
