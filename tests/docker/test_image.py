"""What the built image says of itself, and the licence it carries."""

import pytest
from docker import DockerClient

from common import rig
from common.rig import ROOT
from tests.docker.conftest import BASE, TINY

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2700)]


def test_labels_say_what_it_is_made_of(engine: DockerClient, image: str) -> None:
    mine = rig.load(ROOT / TINY, {})
    labels = engine.images.get(image).labels
    oci = {
        key.removeprefix("org.opencontainers.image."): value
        for key, value in labels.items()
        if key.startswith("org.opencontainers.image.")
    }
    assert oci["title"] == "gemma-rigs"
    # This base has no registry, so it has no digest either.
    assert (oci["base.name"], oci["base.digest"]) == (BASE, "")
    assert mine.llama_cpp_release
    assert (oci["revision"], oci["version"]) == ("", "")  # it is built of a local tree
    assert oci["licenses"] == "Apache-2.0 AND MIT"
    assert labels["gemma-rigs.backend"] == "cpu"


def test_the_licence_of_llama_cpp_is_in_it(engine: DockerClient, image: str) -> None:
    licence = engine.containers.run(
        image, ["/opt/llama.cpp/LICENSE"], entrypoint="cat", remove=True
    ).decode()
    assert licence.startswith("MIT License\n")
    assert "The ggml authors" in licence
