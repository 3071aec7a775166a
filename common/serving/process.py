"""Server: one llama-server process, its command line, start, checks, logs and stop."""

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import psutil

from common import atomic, places
from common.engines.llamacpp import advice, counters, serve
from common.engines.llamacpp.build import Engine
from common.engines.llamacpp.counters import Counters
from common.errors import RigError, StartError
from common.files import wanted
from common.rig import Rig
from common.serving import client, identity, listening

READY_S = 900.0  # a card without a kernel image in the build compiles its kernels at first load
STOP_S = 10.0
KILLED_S = 5.0
LOG_LIMIT = 4 << 20  # bytes
LOOK_S = 0.2
# What a short request asks, to see the drafter work before anything is measured.
CHECK_TOKENS = 16
CHECK_PROMPT = "Count from one to twenty in words."
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    """Runs in the child: the kernel kills the server if this process dies in any way."""
    pr_set_pdeathsig = 1
    _LIBC.prctl(pr_set_pdeathsig, signal.SIGKILL)


def check_files(rig: Rig) -> None:
    """Raise RigError if a model file is missing or is not a GGUF."""
    for file in wanted.wanted(rig):
        where = f"{file.name_key}: {file.path}"
        if not file.path.is_file():
            raise RigError(f"{where} is missing", fix=f"fetch it with: {file.command(rig)}")
        if not wanted.is_gguf(file.path):
            raise RigError(
                f"{where} is not a GGUF file, perhaps a saved web page",
                fix=f"delete it, fetch it again with: {file.command(rig)}",
            )


class Server:
    """A llama-server for one rig. Use as a context manager: it is always stopped.

    `started` is told the id of its process as soon as there is one.
    """

    def __init__(
        self,
        rig: Rig,
        engine: Engine,
        log: Path,
        measuring: bool = False,
        started: Callable[[int], object] = lambda _pid: None,
    ) -> None:
        self.rig = rig
        self.log = log
        self.started = started
        self.command = serve.command(rig, engine.server, measuring)
        self.environment = serve.own_keys(serve.environment(engine.libraries))
        self._log_begin = 0
        self.ready_s: float | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.check: client.Reply | None = None

    def __enter__(self) -> "Server":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until it is ready and does what the rig says.

        Raises RigError if it cannot be started, and StartError, with the last log lines and
        advice, if it does not come up.
        """
        check_files(self.rig)
        check_port(self.rig)
        begin = time.monotonic()
        self.process = self._spawn()
        self.started(self.process.pid)
        try:
            self._wait_ready(begin)
            self.ready_s = time.monotonic() - begin
            self.check_ours()
            self.check_residency()
            self._check_drafting()
        except RigError as error:
            raise StartError(error.what, fix=error.fix) from None

    def _spawn(self) -> "subprocess.Popen[bytes]":
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            log = atomic.append(self.log)
        except OSError as error:
            raise places.cannot_write(self.log, error) from None
        with log:
            self._log_begin = log.tell()  # an earlier start's lines say nothing about this one
            try:
                return subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self.environment,
                    start_new_session=True,  # Ctrl-C reaches us; we stop the server in order
                    preexec_fn=_die_with_parent,
                )
            except OSError as error:
                raise RigError(
                    f"{self.command[0]} cannot be started ({error.strerror or error})",
                    fix="delete its folder and make engine, or name another with LLAMA_SERVER=...",
                ) from None

    def stop(self) -> None:
        """Stop what this object started, a wrapper's child too: SIGTERM, SIGKILL after 10 s."""
        if self.process is None:
            return
        limit = time.monotonic() + STOP_S
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
        while self._group() and time.monotonic() < limit:
            time.sleep(0.05)
        self._signal(signal.SIGKILL)
        self.process.wait()
        limit = time.monotonic() + KILLED_S
        while self._group() and time.monotonic() < limit:
            time.sleep(0.05)

    def _group(self) -> list[int]:
        """Our process and what it started, as far as they have not ended."""
        return [] if self.process is None else identity.group(self.process.pid)

    def _signal(self, number: int) -> None:
        for pid in self._group():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def follow(self, write: Callable[[bytes], object] | None = None) -> int:
        """Wait until the process ends, and hand on the log as it grows; returns the exit code.

        The log does not grow for ever: when it is past LOG_LIMIT, its last lines move to FILE.1, or
        are only dropped where `write` got them, and the server goes on in an empty file.
        """
        assert self.process is not None
        ended = False
        with os.fdopen(os.open(self.log, os.O_RDWR), "r+b", buffering=0) as log:
            while not ended:
                ended = self.process.poll() is not None  # before reading: then nothing is missed
                while write and (chunk := log.read(1 << 16)):
                    write(chunk)
                if os.fstat(log.fileno()).st_size > LOG_LIMIT and not ended:
                    self._empty(log, keep=write is None)
                if not ended:
                    time.sleep(LOOK_S)
        return int(self.process.returncode)

    def _empty(self, log: FileIO, keep: bool) -> None:
        """Empty the log. The server appends, so it goes on at the new end."""
        if keep:
            log.seek(-LOG_LIMIT, os.SEEK_END)
            earlier = self.log.with_name(f"{self.log.name}.1")
            with contextlib.suppress(OSError):  # a full disk is no reason to stop serving
                atomic.write(earlier, log.read(LOG_LIMIT), private=True)
        log.truncate(0)
        log.seek(0)
        self._log_begin = 0

    def check_ours(self) -> None:
        """Our process lives, and no other takes connections where it is asked.

        Raises RigError if another program has the port too, and so perhaps gave the replies.
        """
        if not self.alive:
            raise self.death("llama-server has ended")
        where = f"port {self.rig.port} on {self.rig.host}"
        taking = listening.sockets_at(self.rig.host, self.rig.port)
        own = listening.sockets_of(self._group())
        if not taking & own:
            raise RigError(
                f"{where} is not answered by the llama-server that was started for it "
                f"(process {self.process.pid if self.process else 0})",
                fix="see who has the port (ss -ltnp), stop it or choose another with PORT=...",
            )
        if taking - own:
            raise RigError(
                f"{where} is answered by another program too",
                fix="see who has the port (ss -ltnp), stop it or choose another with PORT=...",
            )

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def memory_mib(self) -> dict[str, float] | None:
        """Resident memory of the process now and at its peak, in MiB."""
        if not self.alive or self.process is None:
            return None
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            now = psutil.Process(self.process.pid).memory_info().rss / 2**20
        except (OSError, psutil.Error):
            return None
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        return {"now": now, "peak": int(peak[1]) / 1024 if peak else now}

    def counters(self) -> Counters:
        """What the server has counted since it started. Raises RigError if it does not answer."""
        return counters.read(self.rig.url)

    def log_text(self) -> str:
        """What the log holds of this start; nothing if it cannot be read any more."""
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(self._log_begin if self._log_begin <= size else 0)
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def death(self, what: str) -> RigError:
        """An error that says `what` happened, with the log's last lines and advice."""
        text = self.log_text()
        if not text:
            return RigError(f"{what}; its log {self.log} is empty or gone")
        last = "\n  ".join(text.splitlines()[-12:])
        killed = self.process is not None and _was_killed(self.process.poll())
        found = None if killed else advice.of(text)
        hint = f"\n{found}." if found else ""
        return RigError(f"{what}; the last lines of {self.log} are:\n  {last}{hint}")

    def _wait_ready(self, begin: float) -> None:
        assert self.process is not None
        while time.monotonic() - begin < READY_S:
            if self.process.poll() is not None:
                raise self.death(f"llama-server ended at start {how(self.process.returncode)}")
            if serve.healthy(self.rig.url):
                return
            time.sleep(0.02)
        raise self.death(f"llama-server was not ready after {READY_S:.0f} s")

    def check_residency(self) -> None:
        """The card is the one in use and holds all layers; never a silent CPU fallback."""
        if self.rig.backend != "cuda":
            return
        text = self.log_text()
        if not serve.on_card(text):
            raise self.death("llama-server runs on the CPU, not on the card")
        if len(used := serve.cards(text)) > 1:
            raise RigError(
                f"the model lies on {len(used)} cards ({', '.join(used)}), so speeds would mislead",
                fix="name one of them: CUDA_VISIBLE_DEVICES=GPU-... (nvidia-smi -L)",
            )
        done, total = serve.layers(text)
        if done != total:
            raise RigError(
                f"only {done} of {total} layers fit the card, so speeds would mislead: "
                "lower CTX_SIZE, or close what else uses the card"
            )

    def _check_drafting(self) -> None:
        """A short request, also in an arm without drafter so that all arms start alike."""
        body = client.chat(CHECK_PROMPT, CHECK_TOKENS, temperature=0)
        self.check = client.ask(self.rig.url, [body], 300)[0]
        if self.check.error:
            raise self.death(f"the first request failed: {self.check.error}")
        if self.rig.drafts and self.rig.needs_drafter and not self.check.draft_n:
            raise self.death(
                f"SPEC_TYPE={self.rig.spec_type} but the server drafted nothing; "
                "check that SPEC_DRAFT_MODEL belongs to MODEL"
            )


def how(code: int) -> str:
    """How a process of this exit code ended."""
    number = _signal_of(code)
    names = {member.value: member.name for member in signal.Signals}
    return f"by {names.get(number, number)}" if number else f"with exit code {code}"


def _was_killed(code: int | None) -> bool:
    """Whether somebody else ended it, so that its log cannot tell why."""
    return code is not None and _signal_of(code) in (
        signal.SIGKILL,
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
    )


def _signal_of(code: int) -> int:
    """The signal that ended it, also where a shell says so of its child; 0 if none did."""
    return -code if code < 0 else max(0, code - 128)


def check_port(rig: Rig) -> None:
    """Raise RigError if something listens on the rig's port already."""
    family = socket.AF_INET6 if ":" in rig.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((rig.host, rig.port))
        except OSError as error:
            raise RigError(
                f"port {rig.port} on {rig.host} cannot be used ({error.strerror})",
                fix="stop what uses it (make stop), or choose another with PORT=...",
            ) from None
