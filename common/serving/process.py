"""Server: one llama-server process, its command line, start, checks, logs and stop."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from common.engines.llamacpp import counters, serve
from common.engines.llamacpp.build import Engine
from common.engines.llamacpp.counters import Counters
from common.errors import RigError, StartError
from common.files import wanted
from common.rig import Rig
from common.serving import client

READY_S = 900.0  # a card without a kernel image in the build compiles its kernels at first load
STOP_S = 10.0
LOG_LIMIT = 4 << 20  # bytes
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
    """A llama-server for one rig. Use as a context manager: it is always stopped."""

    def __init__(self, rig: Rig, engine: Engine, log: Path, measuring: bool = False) -> None:
        self.rig = rig
        self.log = log
        self.command = serve.command(rig, engine.server, measuring)
        self.environment = serve.environment(engine.libraries)
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
        self.log.parent.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,  # Ctrl-C reaches us; we stop the server in order
                preexec_fn=_die_with_parent,
            )
        try:
            self._wait_ready(begin)
            self.ready_s = time.monotonic() - begin
            self.check_residency()
            self._check_drafting()
        except RigError as error:
            raise StartError(error.what, fix=error.fix) from None

    def stop(self) -> None:
        """Stop the process this object started: SIGTERM, then SIGKILL after 10 seconds."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def follow(self, write: Callable[[bytes], object]) -> int:
        """Hand on the log as it grows until the process ends; returns its exit code.

        Used where another program keeps the log (Docker): the file is emptied when it has grown
        past LOG_LIMIT, so that it does not fill the container's memory.
        """
        assert self.process is not None
        ended = False
        with self.log.open("rb") as log:
            while not ended:
                ended = self.process.poll() is not None  # before reading: then nothing is missed
                while chunk := log.read(1 << 16):
                    write(chunk)
                if log.tell() > LOG_LIMIT and not ended:
                    os.truncate(self.log, 0)  # the server appends, so it goes on at the new end
                    log.seek(0)
                if not ended:
                    time.sleep(0.2)
        return int(self.process.returncode)

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
        return self.log.read_text(errors="replace")

    def death(self, what: str) -> RigError:
        """An error that says `what` happened, with the log's last lines and advice."""
        text = self.log_text()
        last = "\n  ".join(text.splitlines()[-12:])
        advice = [sentence for pattern, sentence in serve.ADVICE if re.search(pattern, text)]
        hint = f"\n{advice[0]}." if advice else ""
        return RigError(f"{what}; the last lines of {self.log} are:\n  {last}{hint}")

    def _wait_ready(self, begin: float) -> None:
        assert self.process is not None
        while time.monotonic() - begin < READY_S:
            if self.process.poll() is not None:
                raise self.death(f"llama-server ended at start {_how(self.process.returncode)}")
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


def _how(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


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
