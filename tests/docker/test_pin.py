"""make pin with the real buildx, against a registry of our own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import RigError
from common.rigs import bases
from tests.helpers.fake_registry import FakeRegistry

pytestmark = pytest.mark.docker


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as found:
        yield found


def test_the_digest_is_that_of_the_index(registry: FakeRegistry) -> None:
    digest = registry.push("some/ubuntu", "24.04")
    name = f"{registry.address}/some/ubuntu:24.04"
    assert bases.look(name) == digest
    assert bases.look(f"{name}@{digest}") == digest  # as the Dockerfile then names it
    # One whole manifest a question, however many platforms: registries count those.
    assert [line for line in registry.seen if line.startswith("GET")] == [
        f"GET /v2/some/ubuntu/manifests/{digest}"
    ] * 2
    with pytest.raises(RigError, match=r"some/ubuntu:no: not found$"):
        bases.look(f"{registry.address}/some/ubuntu:no")


def test_no_registry_is_one_line() -> None:
    with pytest.raises(RigError, match="connection refused") as caught:
        bases.look("127.0.0.1:1/some/ubuntu:24.04")
    assert "\n" not in str(caught.value)


def test_pin_follows_the_tags(registry: FakeRegistry, tree: Path) -> None:
    """The project's own Dockerfile, with this registry in the place of Docker's."""
    path = tree / bases.DOCKERFILE
    text = path.read_text()
    found = bases.written(text)
    for number, base in enumerate(found):
        text = text.replace(base.name, f"{registry.address}/base-{number}:1")
    path.write_text(text)
    first = [registry.push(f"base-{number}", "1") for number in range(len(found))]
    assert pin(tree) == 0
    assert digests(path) == first
    moved = registry.push("base-1", "1", "another day")
    assert pin(tree) == 0
    assert digests(path) == [first[0], moved, *first[2:]]
    pinned = path.read_text()
    registry.held.clear()
    assert pin(tree) == 1
    assert path.read_text() == pinned


def digests(dockerfile: Path) -> list[str]:
    return [base.digest for base in bases.written(dockerfile.read_text())]


def pin(tree: Path) -> int:
    line = [sys.executable, str(tree / "scripts" / "pin_bases.py")]
    return subprocess.run(line, env={**os.environ, "PYTHONPATH": str(tree)}).returncode
