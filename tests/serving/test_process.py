"""The command line, and what goes wrong at start, each as one clear message."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import requests

from common import places, rig
from common.engines.llamacpp import serve
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.rig import ROOT, Rig
from common.serving.process import Server
from tests.engines.llamacpp.test_advice import NO_CARD

FACTS = (
    "llama-server -m MODEL --host 127.0.0.1 --port 8080 -ngl 99 -c 8192 -ctk f16 -ctv f16 -fa 1 "
    "--reasoning off --metrics --cors-origins localhost --no-slots -md DRAFTER "
    "--spec-type draft-mtp -ngld all --spec-draft-n-max N"
)


@pytest.mark.parametrize("card", ["3050oem", "1650ti"])
@pytest.mark.parametrize("size", ["2b", "4b"])
def test_the_line_is_the_published_one(
    card: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELS_DIR", "/m")
    loaded = rig.load(ROOT / f"local-llamacpp-{card}-{size}-q4_0", environ={})
    wanted = FACTS.replace("MODEL", f"/m/gemma-4-E{size.upper()}-it-q4_0-exact.gguf", 1)
    wanted = wanted.replace(
        "DRAFTER", f"/m/gemma-4-E{size.upper()}-it-qat-assistant-q4_0-exact.gguf"
    )
    wanted = wanted.removesuffix("N") + {"3050oem": "2", "1650ti": "1"}[card]
    assert " ".join(serve.command(loaded, "llama-server")) == wanted
    none = loaded.variant({"SPEC_DRAFT_MODEL": ""})
    assert " ".join(serve.command(none, "llama-server")) == wanted.partition(" -md")[0]


def test_measuring_pins_the_defaults(tiny: Rig) -> None:
    line = " ".join(serve.command(tiny, "x", measuring=True))
    assert line.endswith("-np 1 -fit off -cram 0")
    several = tiny.variant({"PARALLEL": "4", "KV_UNIFIED": "1"})
    line = " ".join(serve.command(several, "x", measuring=True))
    assert line.endswith("-np 4 -kvu -fit off -cram 0")


def test_ngram_types_need_no_drafter_file(tiny: Rig) -> None:
    line = serve.command(tiny.variant({"SPEC_TYPE": "ngram-mod"}), "x")
    assert "-md" not in line
    assert line[line.index("--spec-type") + 1] == "ngram-mod"


def failure(loaded: Rig, engine: Engine) -> str:
    running = Server(loaded, engine, loaded.folder / "server.log", measuring=True)
    with pytest.raises(RigError) as caught, running:
        pass
    assert running.process is None or running.process.poll() is not None
    return str(caught.value)


def test_a_busy_port(tiny: Rig, fake: Callable[..., Engine]) -> None:
    with socket.socket() as other:
        other.bind((tiny.host, tiny.port))
        other.listen()
        text = failure(tiny, fake())
    assert f"port {tiny.port} on 127.0.0.1 cannot be used" in text
    assert "PORT=" in text


@pytest.fixture
def own_models(tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The rig with a models folder that a test may spoil."""
    models = tmp_path / "models"
    shutil.copytree(places.models(), models)
    monkeypatch.setenv("MODELS_DIR", str(models))
    return tiny


def test_a_missing_model(own_models: Rig, fake: Callable[..., Engine]) -> None:
    places.model_file(own_models.model).unlink()
    text = failure(own_models, fake())
    assert "MODEL:" in text
    assert f"is missing; fetch it with: make -C {own_models.name} model" in text


def test_a_missing_drafter(own_models: Rig, fake: Callable[..., Engine]) -> None:
    places.model_file(str(own_models.spec_draft_model)).unlink()
    text = failure(own_models, fake())
    assert "SPEC_DRAFT_MODEL:" in text
    assert f"is missing; fetch it with: make -C {own_models.name} draft" in text


def test_a_web_page_saved_as_a_model(own_models: Rig, fake: Callable[..., Engine]) -> None:
    places.model_file(str(own_models.spec_draft_model)).write_text("<!doctype html><p>Sign in")
    text = failure(own_models, fake())
    assert "SPEC_DRAFT_MODEL:" in text
    assert "not a GGUF file, perhaps a saved web page" in text
    assert text.endswith(" draft")


@pytest.mark.engine
@pytest.mark.parametrize("length", [3000, 200_000])
@pytest.mark.parametrize(("key", "target"), [("MODEL", "model"), ("SPEC_DRAFT_MODEL", "draft")])
def test_a_truncated_file(
    own_models: Rig, real_engine: Engine, key: str, target: str, length: int
) -> None:
    """Cut within the metadata, and within the weights."""
    file = places.model_file(str(getattr(own_models, key.lower())))
    file.write_bytes(file.read_bytes()[:length])
    text = failure(own_models, real_engine)
    assert f"file is damaged: delete it and fetch it again with make {target}" in text


@pytest.mark.engine
def test_a_drafter_of_another_model(own_models: Rig, real_engine: Engine) -> None:
    """The target as its own drafter: a GGUF, but no drafter of this model."""
    rig = own_models.variant({"SPEC_DRAFT_MODEL": own_models.model})
    text = failure(rig, real_engine)
    assert "SPEC_DRAFT_MODEL" in text


@pytest.mark.engine
def test_a_spec_type_the_engine_does_not_know(
    tiny: Rig, real_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_draft_flags", lambda _rig: ["--spec-type", "draft-tomorrow"])
    assert "does not know this SPEC_TYPE" in failure(tiny, real_engine)


@pytest.mark.engine
def test_a_flag_the_engine_does_not_know(
    tiny: Rig, real_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_draft_flags", lambda _rig: ["--draft-from-tomorrow"])
    assert "too old for a flag" in failure(tiny, real_engine)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("cudaMalloc failed: out of memory", "not enough memory"),
        ("CUDA driver version is insufficient for CUDA runtime version", "driver is too old"),
        ("error: draft model vocab type must match target model", "does not belong to this model"),
        ("unknown model architecture: 'gemma9'", "does not know this model's architecture"),
    ],
)
def test_known_causes_get_advice(tiny: Rig, tmp_path: Path, log: str, words: str) -> None:
    running = Server(tiny, Engine(Path("x"), {}), tmp_path / "server.log")
    running.log.write_text(f"first\n{log}\n")
    text = str(running.death("it ended"))
    assert words in text
    assert log in text


def on_card(tiny: Rig, tmp_path: Path, log: str) -> Server:
    loaded = tiny.variant({"BACKEND": "cuda", "GPU_NAME": "RTX_3050"})
    running = Server(loaded, Engine(Path("x"), {}), tmp_path / "server.log")
    running.log.write_text(log)
    return running


def test_a_silent_fallback_to_the_cpu_is_an_error(tiny: Rig, tmp_path: Path) -> None:
    """As llama-server for CUDA logs it without a card; it is healthy, and answers on the CPU."""
    log = f"{NO_CARD}\n0.00.012.135 I load_tensors:   CPU_Mapped model buffer size =     0.38 MiB\n"
    with pytest.raises(RigError, match="runs on the CPU, not on the card") as caught:
        on_card(tiny, tmp_path, log).check_residency()
    assert "CUDA finds no card" in str(caught.value)


def test_layers_left_off_the_card_are_an_error(tiny: Rig, tmp_path: Path) -> None:
    log = "load_tensors: offloaded {}/36 layers to GPU\nload_tensors: CUDA0 model buffer size = 9\n"
    on_card(tiny, tmp_path, log.format(36)).check_residency()
    with pytest.raises(RigError, match="only 20 of 36 layers fit"):
        on_card(tiny, tmp_path, log.format(20)).check_residency()


def test_settings_in_the_environment_do_not_reach_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "1")
    assert "LLAMA_ARG_CTX_SIZE" not in serve.environment()


@pytest.mark.parametrize(
    "key",
    ["AIP_MODE", "AIP_HTTP_PORT", "LLAMA_CACHE", "LLAMA_TRACE", "HF_TOKEN", "HTTP_PROXY", "HOST"],
)
def test_a_server_is_told_only_what_it_needs(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    for kept in ("PATH", "CUDA_VISIBLE_DEVICES", "GGML_CUDA_FORCE_MMQ", "OMP_NUM_THREADS"):
        monkeypatch.setenv(kept, "kept")
        assert serve.environment()[kept] == "kept"
    monkeypatch.setenv(key, "PREDICTION")
    assert key not in serve.environment()


@pytest.mark.engine
def test_the_port_is_the_rigs_whatever_the_environment_says(
    tiny: Rig, real_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIP_MODE", "PREDICTION")
    with Server(tiny, real_engine, tmp_path / "log") as running:
        assert serve.healthy(tiny.url)
        assert running.check is not None


@pytest.mark.engine
def test_an_ipv6_address_is_served_and_asked(
    tiny: Rig, real_engine: Engine, tmp_path: Path
) -> None:
    six = tiny.variant({"HOST": "::1"})
    with Server(six, real_engine, tmp_path / "log") as running:
        assert running.check is not None
        assert running.check.draft_n
        assert six.url == f"http://[::1]:{six.port}"
        assert serve.properties(six.url)["total_slots"]


EVIL = ("https://evil.example", "http://localhost.evil.example", "null")


def allowed(url: str, origin: str, path: str = "/v1/chat/completions") -> list[str | None]:
    """Whom the preflight and the reply let read them."""
    head = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    asked = requests.options(url + path, headers=head, timeout=10)
    told = requests.post(url + path, json=body, headers=head, timeout=10)
    assert told.ok
    name = "Access-Control-Allow-Origin"
    return [asked.headers.get(name), told.headers.get(name)]


@pytest.mark.engine
def test_no_other_web_page_may_read_replies(tiny: Rig, real_engine: Engine, tmp_path: Path) -> None:
    with Server(tiny, real_engine, tmp_path / "log"):
        for origin in EVIL:
            assert allowed(tiny.url, origin) == [None, None]
        here = "http://localhost:3000"
        assert allowed(tiny.url, here) == [here, here]
        assert not requests.get(f"{tiny.url}/slots", timeout=10).ok
    chat = "https://chat.example.org"
    with Server(tiny.variant({"CORS_ORIGINS": chat}), real_engine, tmp_path / "log"):
        assert allowed(tiny.url, chat) == [chat, chat]
        for origin in EVIL:
            assert origin not in allowed(tiny.url, origin)
            assert "*" not in allowed(tiny.url, origin)


def test_a_model_on_two_cards_is_an_error(tiny: Rig, tmp_path: Path) -> None:
    log = (
        "load_tensors: offloaded 36/36 layers to GPU\n"
        "load_tensors:        CUDA0 model buffer size = 9 MiB\n"
        "load_tensors:        CUDA{} model buffer size = 9 MiB\n"
    )
    on_card(tiny, tmp_path, log.format(0)).check_residency()
    with pytest.raises(RigError, match=r"on 2 cards \(CUDA0, CUDA1\)"):
        on_card(tiny, tmp_path, log.format(1)).check_residency()


def test_a_killed_parent_takes_its_server_along(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path
) -> None:
    engine = fake()
    code = (
        "import sys, time; from pathlib import Path\n"
        "from common import rig; from common.engines.llamacpp.build import Engine\n"
        "from common.serving.process import Server\n"
        "folder, program, log = map(Path, sys.argv[1:])\n"
        "server = Server(rig.load(folder), Engine(program, {}), log); server.start()\n"
        "print(server.process.pid, flush=True); time.sleep(60)\n"
    )
    paths = [str(tiny.folder), str(engine.server), str(tmp_path / "log")]
    parent = subprocess.Popen(
        [sys.executable, "-c", code, *paths], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.wait()
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} lives on")
