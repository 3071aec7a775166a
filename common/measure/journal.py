"""Journal: what the files of a run hold, as types: its manifest, trials, starts, and its note.

A file, or a line, of before there were versions is of form 0: the same, without a version.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, with_config
from typing_extensions import NotRequired, TypedDict

from common.host.energy import Source
from common.measure.summary import Strict

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Versioned(Strict):
    version: NotRequired[int]
    """run.VERSIONS says which"""


class Harness(Strict):
    commit: str | None
    dirty: bool | None


class Host(Strict):
    cpu: str
    cores: int | None
    memory_gib: float
    kernel: str


class File(Strict):
    name: str
    size: int
    sha256: Sha256


class Card(Strict):
    name: str
    driver: str | None
    cuda: str | None
    memory_mib: int
    power_limit_w: float | None
    vbios: str | None
    compute_capability: list[int] | None


class Request(Strict):
    characters: int
    bytes: NotRequired[int]
    sha256: Sha256
    max_tokens: int


@with_config(extra="allow")
class Cell(TypedDict):
    """What every cell has, then what kinds need to know of theirs; a kind may add more."""

    infeasible: str | None
    requests: list[Request]
    depth: NotRequired[int]
    kind: NotRequired[str]
    shape: NotRequired[str]
    at_once: NotRequired[int]
    loop: NotRequired[bool]
    test: NotRequired[str]
    questions: NotRequired[list[str]]


class Turn(Strict):
    kind: str
    sampling: dict[str, Any]


class Plan(Strict):
    arms: dict[str, dict[str, str]]
    cells: dict[str, Cell]
    order: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    rounds: dict[str, Turn]
    quick: bool
    inputs: NotRequired[dict[str, Any]]
    """what else a kind's plan was made from"""


class Origin(Versioned):
    """What the manifest of every run has."""

    what: str
    rig: str
    started: str
    ended: str | None


class Made(Strict):
    harness: Harness
    host: Host


class Measured(Made):
    """What is measured, on what, with what."""

    plan: Plan
    settings: dict[str, str]
    overridden: list[str]
    prompts_sha256: NotRequired[Sha256 | None]
    engine: dict[str, Any]
    """engine.json, as the engine says"""
    engine_title: str
    engines: NotRequired[dict[str, dict[str, Any]]]
    """of the arms that have one of their own"""
    image: NotRequired[str | None]
    files: dict[str, File]
    card: Card | None
    energy: NotRequired[Source | None]
    """where joules are read; None: nowhere. What goes on with a run keeps to it"""
    environment: NotRequired[dict[str, str]]
    """variables that decide speed and are no settings"""
    wall_s: float | None


class Manifest(Origin, Measured):
    """Of every run that asks a model."""


class QuickPlan(Strict):
    quick: bool


class RepackPlan(QuickPlan):
    rounds: int
    threads: int


class RepackManifest(Origin, Made):
    """Of bench-repack, which starts no server."""

    plan: RepackPlan
    engine: dict[str, Any]
    engine_title: str
    load: float


class ImageManifest(Origin, Made):
    """Of a look into an image, in which no model runs."""

    plan: QuickPlan
    engine: dict[str, Any]
    """engine.json as it lies in the image"""
    engine_title: str
    load: float
    build_seconds: float


class Schedule(Strict):
    chunks: int
    rate: float
    ttft_s: float


class ClientManifest(Origin, Made):
    """Of bench-client, which asks a mock server."""

    clients: list[str]
    versions: dict[str, str]
    absent: dict[str, str]
    streams: list[int]
    rounds: int
    schedule: Schedule


class Memory(Strict):
    """In MiB: of the process, and used on the whole card."""

    process: float | None
    process_peak: float | None
    card: float | None


class Counters(Strict):
    drafts: int
    drafted: int
    accepted: int
    accepted_per_pos: list[int]
    prompt_tokens: int
    predicted_tokens: int
    busy_slots: float | None


class Function(Strict):
    name: str
    arguments: str


class Call(Strict):
    type: str
    function: Function


class Piece(Strict):
    text: str
    top: list[Any] | None
    id: NotRequired[int]
    logprob: NotRequired[float]


class Sample(Strict):
    """One reply; serving/client.py says what its fields mean."""

    error: str | None
    content: str
    reasoning: str
    finish_reason: str | None
    ttft_ms: float | None
    content_ms: NotRequired[float | None]
    last_text_ms: float | None
    wall_ms: float | None
    sent_ms: NotRequired[float | None]
    gaps_ms: NotRequired[list[float] | None]
    text_chunks: int
    prompt_n: int | None
    prompt_ms: float | None
    cache_n: int | None
    usage_n: NotRequired[int | None]
    predicted_n: int | None
    predicted_ms: float | None
    predicted_per_second: float | None
    draft_n: int | None
    draft_n_accepted: int | None
    tool_calls: NotRequired[list[Call] | None]
    pieces: NotRequired[list[Piece] | None]
    client_per_second: float | None
    clocks_disagree: bool


class Trial(Versioned):
    """A cell's requests, sent at once in one round of one arm; or by users, one after the other."""

    round: str
    arm: str
    cell: str
    start: float
    end: float
    failed: str | None
    counters: Counters | None
    energy_j: NotRequired[float | None]
    """drawn from sending to the end of the last reply"""
    memory_mib: Memory | None
    throttles: list[str] | None
    """None: the card does not say"""
    users: NotRequired[int]
    """of a closed loop"""
    samples: list[Sample]


class Command(Versioned):
    """Of bench-repack: a command that was timed."""

    command: str
    failed: None
    seconds: float
    source_bytes: int
    threads: int
    round: NotRequired[int]
    cpu_seconds: NotRequired[float]
    sync_seconds: NotRequired[float]
    resident: NotRequired[int]


class Layer(Strict):
    made_by: str
    bytes: int


class Part(Strict):
    """A library in an image."""

    name: str
    bytes: int
    compressed_bytes: int


class Said(Strict):
    """How a program ended, and what it said."""

    case: str
    code: int
    text: str


class Packed(Versioned):
    """Of a look into an image."""

    failed: None
    architectures: list[str]
    image: str
    bytes: int
    compressed_bytes: int
    layers: list[Layer]
    libraries: list[Part]
    linked: list[str]
    missing: list[str]
    machine_code: list[str]
    says: list[str]
    """llama-server --version"""
    tools: list[str]
    headers: int
    user: str
    labels: dict[str, str]
    without_driver: Said


class Client(Versioned):
    """Of bench-client: a client that was measured."""

    round: int
    client: str
    streams: int
    failed: str | None
    us_per_chunk: NotRequired[float]
    ttft_error_ms: NotRequired[float]
    worst_ttft_error_ms: NotRequired[float]
    rate_error: NotRequired[float]


class Start(Versioned):
    """A server that was started."""

    round: str
    arm: str
    ready_s: float
    checked_s: float | None
    cooled_s: float
    temperature_c: int | None
    command: list[str]
    memory_ready_mib: Memory


Name = Literal["manifest.json", "samples.jsonl", "starts.jsonl", "summary.json"]


class Written(Strict):
    """SHA-256 of a finished run's files when its report was written; None: there was none."""

    version: int
    sha256: Annotated[dict[Name, Sha256 | None], Field(min_length=4, max_length=4)]
