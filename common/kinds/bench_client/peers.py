"""Peer: another benchmark client, in a virtual environment of its own below the cache."""

import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from common import places
from common.errors import RigError
from common.kinds.bench_client.mock import BOOK

INSTALL_S = 1800
RUN_S = 300
SAMPLE_S = 0.05


@dataclass(frozen=True)
class Peer:
    """A published package and the command that streams once from a server."""

    name: str
    version: str
    arguments: Callable[[str, int, int, Path], list[str]]
    """address, streams, tokens, a folder for its files -> what follows the program's name"""

    @property
    def folder(self) -> Path:
        return places.cache() / "peers" / f"{self.name}-{self.version}"

    @property
    def installed(self) -> bool:
        return (self.folder / "ready").is_file()

    def install(self) -> None:
        """Install into its own environment. Raises RigError if it cannot be had."""
        python, venv = str(self.folder / "bin" / "python"), [sys.executable, "-m", "venv"]
        package = f"{self.name}=={self.version}"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
        try:
            for command in ([*venv, "--clear", str(self.folder)], pip):
                subprocess.run(
                    command, check=True, capture_output=True, text=True, timeout=INSTALL_S
                )
        except subprocess.CalledProcessError as error:
            last = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise RigError(f"{package} cannot be installed: {last}") from None
        except subprocess.TimeoutExpired:
            raise RigError(f"{package} was not installed after {INSTALL_S} s") from None
        (self.folder / "ready").touch()

    def run(self, url: str, streams: int, tokens: int) -> list[tuple[float, float]]:
        """Stream once; CPU seconds used so far, of all its processes, by time.perf_counter().

        Raises RigError, with its last words, if it fails.
        """
        with tempfile.TemporaryDirectory() as own:
            program = [self.folder / "bin" / self.name]
            with (Path(own) / "said").open("w+") as said:
                process = psutil.Popen(
                    [*program, *self.arguments(url, streams, tokens, Path(own))],
                    cwd=own,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                )
                try:
                    samples = _watch(process)
                finally:
                    _end(process)
                said.seek(0)
                words = " ".join(re.sub(r"[^ -~]", " ", said.read()).split())[-300:]
        if process.returncode != 0:
            raise RigError(f"{self.name} {self.version} failed: {words}")
        return samples


def cpu_between(samples: list[tuple[float, float]], start: float, end: float) -> float:
    """CPU seconds used from `start` to `end`, linear between samples."""

    def used(moment: float) -> float:
        for (t0, c0), (t1, c1) in itertools.pairwise(samples):
            if t0 <= moment <= t1:
                return c0 + (c1 - c0) * (moment - t0) / (t1 - t0)
        raise RigError("the benchmark client was not running while it was served")

    return used(end) - used(start)


def _watch(process: psutil.Popen) -> list[tuple[float, float]]:
    """Sample the CPU time of a process and its children until it ends."""
    used: dict[str, float] = {}
    samples = []
    deadline = time.monotonic() + RUN_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            family = [process, *process.children(recursive=True)]
        except psutil.Error:
            break
        for member in family:
            used.update(_threads(member.pid))
        samples.append((time.perf_counter(), sum(used.values())))
        time.sleep(SAMPLE_S)
    return samples


def _threads(pid: int) -> dict[str, float]:
    """CPU seconds of every thread, to the nanosecond: psutil's are to the clock tick."""
    found = {}
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            found[str(path)] = int(path.read_text().split()[0]) / 1e9
        except (OSError, IndexError):
            continue  # the thread has ended; what it used is known from before
    return found


def _end(process: psutil.Popen) -> None:
    if process.poll() is None:
        children = process.children(recursive=True)
        for member in [process, *children]:
            member.kill()
    process.wait()


def _tokenizer(folder: Path) -> str:
    """A tokenizer both peers can cut their prompts with: words of the mock's book. Returns where
    it was put."""
    unknown = "[UNK]"
    words = [unknown, *sorted(set(re.findall(r"\w+", BOOK)))]
    model = {
        "type": "WordLevel",
        "vocab": {word: number for number, word in enumerate(words)},
        "unk_token": unknown,
    }
    whole = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": model,
    }
    kind = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": unknown,
        "eos_token": unknown,
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    return str(folder)


def _benchy(url: str, streams: int, tokens: int, own: Path) -> list[str]:
    return [
        *("--base-url", f"{url}/v1", "--model", "mock", "--tokenizer", _tokenizer(own)),
        *("--book-url", f"{url}/book", "--pp", "32", "--tg", str(tokens), "--runs", "1"),
        *("--concurrency", str(streams), "--latency-mode", "none", "--no-warmup"),
        *("--skip-coherence", "--no-adapt-prompt"),
    ]


def _aiperf(url: str, streams: int, tokens: int, own: Path) -> list[str]:
    return [
        *("profile", "--model", "mock", "--url", url, "--endpoint-type", "chat", "--streaming"),
        *("--concurrency", str(streams), "--request-count", str(streams), "--isl", "32"),
        *("--osl", str(tokens), "--tokenizer", _tokenizer(own), "--ui", "none"),
        *("--artifact-dir", str(own / "out"), "--no-gpu-telemetry", "--no-server-metrics"),
    ]


PEERS = (Peer("llama-benchy", "0.4.0", _benchy), Peer("aiperf", "0.13.0", _aiperf))
