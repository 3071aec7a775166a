"""Answers: what the MCP tools give back. A value that is absent is null, never 0."""

from typing import Any, Literal

from pydantic import BaseModel, Field

State = Literal["running", "finished", "failed", "cancelled", "lost", "elsewhere"]


class Configuration(BaseModel):
    rig: str
    folder: str
    address: str = Field(description="where the OpenAI API is served")
    settings: dict[str, str] = Field(description="every setting in force; empty means absent")
    overridden: list[str] = Field(description="settings from the environment, not from tpu.env")
    command: list[str] = Field(description="the llama-server command line")
    when_measuring: list[str] = Field(description="what measurements add to it")
    engine: str | None = Field(description="null: not built yet; start_server builds it")


class HostCheck(BaseModel):
    name: str
    state: Literal["ok", "lacks", "note"]
    text: str
    fix: str | None


class Host(BaseModel):
    can_run: bool
    checks: list[HostCheck]


class ServerStatus(BaseModel):
    state: Literal["ready", "starting", "stopped", "silent"] = Field(
        description="silent: the process is there but does not answer"
    )
    address: str
    pid: int | None = Field(description="of llama-server")
    served_s: float | None
    job: str | None = Field(description="the job that serves it; null if a terminal does")
    context: int | None = Field(description="tokens per slot")
    slots: int | None
    last_end: str | None = Field(description="how it ended, if the last one ended by itself")


class ServerStart(BaseModel):
    already: bool = Field(description="it was served, or starting, before this call")
    ready: bool = Field(description="false: still starting; ask server_status")
    server: ServerStatus


class ServerStop(BaseModel):
    stopped: bool = Field(description="false: it was not being served")
    took_s: float


class LogLines(BaseModel):
    file: str
    lines: list[str]


class Metrics(BaseModel):
    drafts: int
    drafted: int
    accepted: int
    accepted_per_position: list[int]
    kept: float | None = Field(description="accepted / drafted; null: nothing drafted")
    prompt_tokens: int
    generated_tokens: int


class Watched(BaseModel):
    seconds: float
    generated_tokens: int
    tokens_per_second: float = Field(description="of all requests together, over these seconds")
    drafted: int
    kept: float | None


class Reply(BaseModel):
    text: str
    reasoning: str | None
    finish_reason: str | None = Field(description="length: cut at max_tokens")
    prompt_tokens: int | None
    generated_tokens: int
    tokens_per_second: float = Field(description="the server's own timing of decoding")
    first_text_ms: float | None
    drafted: int | None = Field(description="null: no drafter, or nothing drafted")
    accepted: int | None
    kept: float | None = Field(description="accepted / drafted")


class Health(BaseModel):
    healthy: bool
    problems: list[str]
    reply: Reply | None


class ModelFile(BaseModel):
    role: Literal["model", "drafter"]
    name: str
    here: bool
    bytes: int | None
    sha256: str | None = Field(description="null: not here, or not worked out yet")
    state: str


class ModelFiles(BaseModel):
    folder: str
    files: list[ModelFile]
    messages: list[str] = Field(description="what was said on the way")


class Memory(BaseModel):
    need_mib: float
    parts_mib: dict[str, float]
    free_mib: float | None = Field(description="of the card, or the host for a CPU rig")
    where: str = Field(description="which memory free_mib speaks of, or why it is null")
    fits: bool | None


class JobInfo(BaseModel):
    job: str
    kind: str
    state: State
    quick: bool
    resume: bool
    started: str
    ended: str | None
    exit_code: int | None
    run: str | None = Field(description="the run it measures into; see read_run")
    trials_done: int
    trials_total: int | None = Field(description="null: not known yet")
    error: str | None = Field(description="why it failed")


class Jobs(BaseModel):
    jobs: list[JobInfo]


class Followed(BaseModel):
    job: JobInfo
    log: list[str]
    answer: str | None = Field(description="the result in one sentence, once it is finished")


class RunInfo(BaseModel):
    run: str = Field(description="its name; RIG/NAME for a run of another rig")
    kind: str
    started: str
    ended: str | None = Field(description="null: unfinished; start_measurement can resume it")
    quick: bool
    answer: str | None


class Runs(BaseModel):
    runs: list[RunInfo]
    total: int
    damaged: list[str] = Field(description="runs that cannot be read, each with the reason")


class Page(BaseModel):
    run: str
    part: Literal["report", "summary", "manifest"]
    text: str
    offset: int
    total: int = Field(description="characters in all")
    next_offset: int | None = Field(description="null: this was the end")


class Comparison(BaseModel):
    runs: list[str]
    comparison: dict[str, Any]


class Finding(BaseModel):
    where: str
    setting: str
    speed_up: float
    low: float | None
    high: float | None
    verdict: str


class Recommendation(BaseModel):
    workload: Literal["chat", "documents", "many"]
    run: str | None = Field(description="what it comes from; null: nothing was measured yet")
    changes: dict[str, str] | None = Field(
        description="settings of tpu.env to change; empty: change nothing; null: no recommendation"
    )
    speed_up: dict[str, Any] | None = Field(description="of the change, with its interval")
    findings: list[Finding]
    reason: str


class CardSample(BaseModel):
    name: str
    of_this_rig: bool
    clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    memory_used_mib: float | None
    memory_total_mib: float
    utilization_pct: int | None
    throttles: list[str] | None = Field(description="null: the card does not say")


class Cards(BaseModel):
    cards: list[CardSample]
    note: str | None = Field(description="why there is none, or that the rig's own is missing")
