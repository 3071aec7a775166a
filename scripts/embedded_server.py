"""llama-server's command line on the package xllamacpp, which carries llama.cpp's own server.

common/engines/llamacpp/embedded.py copies this file beside the unpacked package and starts it from
there, so it imports nothing of this project. It takes the flags that serve.py beside that one
writes and no others.
"""

import argparse
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

SWITCH = {"on": 1, "1": 1, "off": 0, "0": 0, "auto": -1}
STOP_S = 2
LOG_S = 0.5  # a thread of the library writes its log, and must not be cut off or written into
AUTO_SLOTS = 4  # llama-server's own choice where -np is not given, with one shared cache


class Parser(argparse.ArgumentParser):
    """One line for what it does not know, in llama-server's words."""

    def error(self, message: str) -> NoReturn:
        fail(message.replace("unrecognized arguments:", "unknown argument:"), 2)


def fail(message: str, code: int = 1) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def parser() -> Parser:
    """The flags of common/engines/llamacpp/serve.py's `command`, by llama-server's names."""
    found = Parser(prog="llama-server", description=__doc__, allow_abbrev=False)
    add = found.add_argument
    add("--version", action="store_true")
    add("-m", metavar="MODEL")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8080)
    add("-ngl", default="auto")
    add("-t", type=int)
    add("-c", type=int, default=0)
    add("-ctk", default="f16")
    add("-ctv", default="f16")
    add("-fa", choices=SWITCH, default="auto")
    add("--reasoning", choices=SWITCH, default="auto")
    add("--metrics", action="store_true")
    add("--cors-origins", default="localhost")
    add("--no-slots", dest="slots", action="store_false")
    add("-md", metavar="DRAFTER")
    add("--spec-type")
    add("-ngld", default="auto")
    add("--spec-draft-n-max", type=int)
    add("--spec-draft-p-min", type=float)
    add("--spec-synth-rates", type=rates)
    add("--chat-template", default="")
    add("-np", type=int)
    add("-kvu", dest="kvu", action="store_true", default=None)
    add("-no-kvu", dest="kvu", action="store_false")
    add("-b", type=int)
    add("-ub", type=int)
    add("-fit", choices=("on", "off"), default="on")
    add("-cram", type=int)
    return found


def rates(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def layers(text: str) -> int:
    """How many layers go to a card; as llama.cpp counts: -1 auto, -2 all."""
    return {"auto": -1, "all": -2}.get(text) or int(text)


def parameters(given: argparse.Namespace, library: Any) -> Any:
    """The library's parameters for a command line, set as llama-server sets its own."""
    p = library.CommonParams()
    p.model.path = given.m
    p.hostnames = [given.host]
    p.port = given.port
    p.n_ctx = given.c
    p.n_gpu_layers = layers(given.ngl)
    p.cache_type_k = member(library.ggml_type, "GGML_TYPE_", given.ctk, "cache type")
    p.cache_type_v = member(library.ggml_type, "GGML_TYPE_", given.ctv, "cache type")
    flash = {1: "ENABLED", 0: "DISABLED", -1: "AUTO"}[SWITCH[given.fa]]
    modes = library.llama_flash_attn_type
    p.flash_attn_type = member(modes, "LLAMA_FLASH_ATTN_TYPE_", flash, "flash attention")
    p.enable_reasoning = SWITCH[given.reasoning]
    if p.enable_reasoning != -1:
        thinking = "true" if p.enable_reasoning else "false"
        p.default_template_kwargs = {"enable_thinking": thinking}
    p.chat_template = given.chat_template
    p.endpoint_metrics = given.metrics
    p.api_keys = [key for key in os.environ.get("LLAMA_API_KEY", "").split(",") if key]
    p.cors_origins = given.cors_origins
    p.endpoint_slots = given.slots
    p.n_parallel = given.np or AUTO_SLOTS
    p.kv_unified = given.np is None if given.kvu is None else given.kvu
    p.fit_params = given.fit == "on"
    p.verbosity = int(os.environ.get("LLAMA_ARG_LOG_VERBOSITY", "3"))
    if given.t is not None:
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = given.t
    for name, value in (
        ("n_batch", given.b),
        ("n_ubatch", given.ub),
        ("cache_ram_mib", given.cram),
    ):
        if value is not None:
            setattr(p, name, value)
    if given.spec_type:
        draft(p.speculative, given, library)
    return p


def draft(speculative: Any, given: argparse.Namespace, library: Any) -> None:
    """Set what has to do with drafting."""
    kinds = library.common_speculative_type
    speculative.types = [
        member(kinds, "COMMON_SPECULATIVE_TYPE_", name, "speculative type")
        for name in given.spec_type.split(",")
    ]
    own = speculative.draft
    own.mparams.path = given.md or ""
    own.n_gpu_layers = layers(given.ngld)
    if given.spec_draft_n_max is not None:
        own.n_max = given.spec_draft_n_max
    if given.spec_draft_p_min is not None:
        own.p_min = given.spec_draft_p_min
    if given.spec_synth_rates:
        speculative.synth_rates = given.spec_synth_rates


def member(names: Any, prefix: str, name: str, what: str) -> Any:
    """The value of an enumeration by llama-server's name for it; one line if it has none."""
    wanted = (prefix + name.replace("-", "_")).upper()
    for one in names:
        if one.name.upper() == wanted:
            return one
    fail(f"unknown {what}: {name}", 2)


def check(given: argparse.Namespace) -> None:
    """End with one line where a file is missing or the port is taken."""
    for flag, file in (("-m", given.m), ("-md", given.md)):
        if file is not None and not Path(file).is_file():
            fail(f"{flag} {file}: there is no such file")
    if given.m is None:
        fail("-m MODEL is missing", 2)
    family = socket.AF_INET6 if ":" in given.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((given.host, given.port))
        except OSError as error:
            fail(f"port {given.port} on {given.host} cannot be used ({error.strerror})")


def load() -> Any:
    """The library; ends with one line where it does not run on this machine."""
    sys.path.insert(0, str(Path(__file__).with_name("package")))
    try:
        import xllamacpp
    except ImportError as error:
        fail(f"the embedded engine cannot be loaded here ({error}); use ENGINE=source")
    return xllamacpp


def version(library: Any) -> str:
    """As llama-server's --version: the release of llama.cpp is the last part of the package's."""
    build = library.BUILD_INFO
    release = library.__version__.split(".")[-1]
    return (
        f"version: {release} (xllamacpp {library.__version__})\n"
        f"built with {build['compiler']} for {build['build_target']}"
    )


def wait_for_signal() -> None:
    """Until SIGTERM or Ctrl-C, whichever thread of the library the kernel hands it to."""
    waking, woken = socket.socketpair()
    waking.setblocking(False)
    signal.set_wakeup_fd(waking.fileno())
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: None)
    woken.recv(1)


def main() -> None:
    given = parser().parse_args()
    if given.version:
        print(version(load()))
        return
    check(given)
    library = load()
    settings = parameters(given, library)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it loads nothing is lost: end at once
    try:
        running = library.Server(settings)
    except RuntimeError:
        time.sleep(LOG_S)
        fail("the server could not start; the reason is in the lines above")
    wait_for_signal()
    # llama.cpp's own server waits for ever here if somebody still reads a reply, and no thread of
    # this Python runs meanwhile: the kernel ends it then.
    signal.alarm(STOP_S)
    del running  # lets go of the port and ends its threads in order


if __name__ == "__main__":
    main()
