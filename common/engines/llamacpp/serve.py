"""Serve: llama-server's command line and environment, what its log and its replies say.

All that knows llama-server's words while it serves: flags, log lines, timings.
"""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

from common import places
from common.engines import asking
from common.errors import RigError
from common.rig import Rig

# How a server ends that was told to; the embedded one cuts a reply that runs on by SIGALRM.
ORDERLY = (0, -signal.SIGTERM, -signal.SIGALRM)
GUARDS = ("--cors-origins", "--no-slots")
"""flags that keep others out; llama-server has the first since July 2026"""
# Jinja for "what was said, and nothing around it".
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"


def command(rig: Rig, program: Path | str, measuring: bool = False) -> list[str]:
    """The llama-server command line. The only place where a setting becomes a flag."""
    line = [str(program), "-m", str(places.model_file(rig.model))]
    line += ["--host", rig.host, "--port", str(rig.port)]
    if rig.n_gpu_layers is not None:
        line += ["-ngl", str(rig.n_gpu_layers)]
    if rig.threads is not None:
        line += ["-t", str(rig.threads)]
    line += ["-c", str(rig.ctx_size), "-ctk", rig.cache_type_k, "-ctv", rig.cache_type_v]
    line += ["-fa", rig.flash_attn, "--reasoning", rig.reasoning, "--metrics"]
    # Its own defaults let every web page read replies, and whoever asks read others' prompts.
    line += ["--cors-origins", rig.cors_origins, "--no-slots"]
    if rig.drafts:
        line += _draft_flags(rig)
    if rig.chat_template == "none":
        line += ["--chat-template", PLAIN]
    parallel = rig.parallel or (1 if measuring else None)
    if parallel is not None:
        line += ["-np", str(parallel)]
    if rig.kv_unified is not None:
        line.append("-kvu" if rig.kv_unified == "1" else "-no-kvu")
    if rig.batch_size is not None:
        line += ["-b", str(rig.batch_size)]
    if rig.ubatch_size is not None:
        line += ["-ub", str(rig.ubatch_size)]
    if measuring:
        line += ["-fit", "off", "-cram", "0"]
    return line


def _draft_flags(rig: Rig) -> list[str]:
    flags = []
    if rig.needs_drafter:
        assert rig.spec_draft_model is not None
        flags += ["-md", str(places.model_file(rig.spec_draft_model))]
    assert rig.spec_type is not None
    flags += ["--spec-type", rig.spec_type]
    if rig.needs_drafter:
        if rig.n_gpu_layers is not None:
            flags += ["-ngld", "all"]
        flags += ["--spec-draft-n-max", str(rig.spec_draft_n_max)]
        if rig.spec_draft_p_min is not None:
            flags += ["--spec-draft-p-min", str(rig.spec_draft_p_min)]
        if rig.spec_synth_rates:
            flags += ["--spec-synth-rates", ",".join(map(str, rig.spec_synth_rates))]
    return flags


# What decides how it runs here, and nothing else: AIP_*, LLAMA_ARG_* and others change its flags.
PASSED = re.compile(
    r"PATH|HOME|USER|LANG|LC_\w+|TZ|TMPDIR|LD_\w+|LLAMA_API_KEY"
    r"|(CUDA|NVIDIA|GGML|OMP|GOMP|KMP|OPENBLAS|MKL|MALLOC)_\w+"
)


def environment(libraries: Path | None = None, card: str | None = None) -> dict[str, str]:
    """What a server is told of our environment: PASSED, and nothing that changes its flags.

    The log level is raised so that the log names the device and what was put on it. An engine's
    own `libraries` come before all others. `card` is the UUID of the only card it may see.
    """
    clean = {key: value for key, value in os.environ.items() if PASSED.fullmatch(key)}
    clean["LLAMA_ARG_LOG_VERBOSITY"] = "4"
    if card is not None:
        clean["CUDA_VISIBLE_DEVICES"] = card
    if libraries is not None:
        paths = [str(libraries), clean.get("LD_LIBRARY_PATH", "")]
        clean["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    return clean


def own_keys(environment: dict[str, str]) -> dict[str, str]:
    """The same environment with its keys as llama-server must get them.

    Of a single key it writes the last four characters into its log, of several only how many.
    """
    keys = asking.keys(environment.get(asking.KEY, ""))
    rest = {name: value for name, value in environment.items() if name != asking.KEY}
    return {**rest, asking.KEY: ",".join(keys * 2 if len(keys) == 1 else keys)} if keys else rest


def is_server(line: list[str], url: str) -> bool:
    """Whether a process of this command line is a llama-server that `command` started there."""
    wanted = ["--port", url.rpartition(":")[2]]
    pairs = [line[place : place + 2] for place in range(len(line))]
    return wanted in pairs and any(pair[0] == "-m" for pair in pairs)


def lacking(program: Path) -> list[str]:
    """The flags of every command line here that this llama-server does not have, as its help says;
    none where it says nothing."""
    try:
        done = subprocess.run([str(program), "--help"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    text = done.stdout + done.stderr
    known = set(re.findall(r"(?<!\S)--[a-z-]+", text))
    return [flag for flag in GUARDS if flag not in known] if "--metrics" in known else []


def healthy(url: str) -> bool:
    """Whether a server runs there and has loaded its model."""
    try:
        return asking.ask(url, "/health").status == 200
    except RigError:
        return False


def properties(url: str) -> dict[str, Any]:
    """What a running server says of itself (/props); empty if none answers, or with no object."""
    try:
        return asking.value(url, "/props")
    except RigError:
        return {}


def slots(url: str) -> tuple[int | None, int | None]:
    """How many slots a running server has, and the context of each; None where it does not say."""
    found = properties(url)
    generation = found.get("default_generation_settings")
    context = generation.get("n_ctx") if isinstance(generation, dict) else None
    told = (found.get("total_slots"), context)
    several, of_each = (value if type(value) is int else None for value in told)
    return several, of_each


def has_page(url: str) -> bool:
    """Whether a running server has llama.cpp's page for chatting, which a build may leave out."""
    try:
        page = asking.ask(url, "/")
    except RigError:
        return False
    return page.status == 200 and "html" in page.kind


TIMINGS = (
    "prompt_n",
    "prompt_ms",
    "cache_n",
    "predicted_n",
    "predicted_ms",
    "predicted_per_second",
    "draft_n",
    "draft_n_accepted",
)


def cards(log: str) -> list[str]:
    """The cards that hold part of a model, as the log has them: CUDA0, CUDA1."""
    return sorted(set(re.findall(r"(CUDA\d+)\b.*model buffer size", log)))


def on_card(log: str) -> bool:
    """Whether the log says that the model lies on a card."""
    return bool(cards(log))


def layers(log: str) -> tuple[int, int]:
    """Layers on the card and layers in all, of the first model in the log that is not whole there;
    of none, equal numbers."""
    found = [(int(a), int(b)) for a, b in re.findall(r"offloaded (\d+)/(\d+) layers to GPU", log)]
    return next((pair for pair in found if pair[0] != pair[1]), (0, 0))
