"""What the image's entry point finds, one cause at a time."""

import os
from pathlib import Path
from typing import Any

import pytest

from common import places
from common.engines.llamacpp import memory
from common.errors import RigError
from common.host import container
from common.host.container import CardFacts
from common.rig import Rig
from common.rigs.cards import CUDA_VERSION
from common.weights.gguf_file import open_gguf
from tests.engines.llamacpp.test_advice import NO_LIBRARY

AMPERE = CardFacts("NVIDIA GeForce RTX 3050", (8, 6), 7900.0, False)
TURING = CardFacts("NVIDIA GeForce GTX 1650 Ti", (7, 5), 3900.0, True)


def engine_info(flags: str) -> dict[str, Any]:
    return {"cuda_version": CUDA_VERSION, "cmake": ["-DX=1", f"-DCMAKE_CUDA_ARCHITECTURES={flags}"]}


@pytest.mark.parametrize(
    ("card", "flags"),
    [
        (AMPERE, "86-real"),
        (AMPERE, "80-real"),  # same major version, older minor
        (AMPERE, "61-virtual;80-virtual"),
        (AMPERE, "86"),
        (TURING, "75-real"),
        (TURING, "61-virtual;80-virtual"),  # compiled for 6.1 and finished at load
    ],
)
def test_kernels_that_run_on_the_card(card: CardFacts, flags: str) -> None:
    container.check_kernels(card, engine_info(flags))


@pytest.mark.parametrize(
    ("card", "flags"), [(AMPERE, "75-real"), (TURING, "86-real"), (TURING, "80-virtual")]
)
def test_no_kernel_for_the_card_names_the_setting(card: CardFacts, flags: str) -> None:
    number = f"{card.capability[0]}{card.capability[1]}"
    with pytest.raises(RigError, match=f"set CUDA_ARCHITECTURES={number}-real"):
        container.check_kernels(card, engine_info(flags))


def test_too_little_free_card_memory(tiny: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "need_mib", lambda _rig: 4000.0)
    container.check_memory(AMPERE, tiny)
    with pytest.raises(RigError, match="3900 MiB free, this rig needs about 4000"):
        container.check_memory(TURING, tiny)


def test_per_layer_embeddings_do_not_count_on_a_card(tiny: Rig) -> None:
    file = open_gguf(places.model_file(tiny.model))
    assert 0 < memory.weights_mib(file, on_card=True) <= memory.weights_mib(file, on_card=False)


def test_program_that_is_for_another_processor(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\nkill -ILL $$\n")
    program.chmod(0o755)
    with pytest.raises(RigError, match="newer processor than this host's; build it here"):
        container.check_program(program)
    program.write_text("#!/bin/sh\necho missing library >&2; exit 127\n")
    with pytest.raises(RigError, match="does not start: missing library"):
        container.check_program(program)
    program.write_text(f"#!/bin/sh\necho '{NO_LIBRARY}' >&2; exit 127\n")
    with pytest.raises(RigError, match=r"libcuda\.so\.1: cannot open .*--gpus all"):
        container.check_program(program)
    program.write_text("#!/bin/sh\n")
    container.check_program(program)


def test_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "SECRETS", tmp_path)
    for name in ("LLAMA_API_KEY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"):
        monkeypatch.setenv(name, "before")
    (tmp_path / "ca_bundle").write_text("")  # what /dev/null looks like
    container.read_secrets()
    assert os.environ["LLAMA_API_KEY"] == os.environ["PIP_CERT"] == "before"
    (tmp_path / "api_key").write_text("key\n")
    (tmp_path / "ca_bundle").write_text("certificates")
    container.read_secrets()
    assert os.environ["LLAMA_API_KEY"] == "key"
    assert os.environ["PIP_CERT"] == os.environ["SSL_CERT_FILE"] == str(tmp_path / "ca_bundle")
