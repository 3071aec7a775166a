"""Base images: what the Dockerfile says of them, and make pin with a stand-in for docker."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import RigError
from common.rig import ROOT
from common.rigs import bases
from common.rigs.bases import Base

DOCKERFILE = (ROOT / bases.DOCKERFILE).read_text()
OLD = f"sha256:{'0' * 64}"
TEXT = f"""# a comment: FROM x:1@{OLD}
ARG BASE=ubuntu:24.04
ARG BASE_DIGEST={OLD}
FROM ${{BASE}}${{BASE_DIGEST:+@}}${{BASE_DIGEST}} AS base
FROM some/cuda:12.8.1@{OLD} AS cuda-12.8.1
FROM localhost:5000/plain:1
FROM base AS runtime
FROM scratch
"""
DOCKER = """#!/bin/sh
# Says of an image what lies in a file of its name; with no such file it fails like a registry.
[ "$1 $2" = "buildx version" ] && exit "$(cat "$0.buildx" 2>/dev/null || echo 0)"
[ "$1 $2 $3 $4" = "buildx imagetools inspect --raw" ] || exit 9
file="$0.$(echo "$5" | tr / _)"
[ -f "$file" ] && exec cat "$file"
printf 'a warning\\nERROR: %s: not found\\n' "$5" >&2
exit 1
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in, first on PATH."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What make pin needs of the project, in a folder that it may write to."""
    for folder in ("common", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / "project" / folder)
    (tmp_path / "project" / bases.DOCKERFILE).write_text(TEXT)
    return tmp_path / "project"


def pin(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(project / "scripts" / "pin_bases.py")],
        env={**os.environ, "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
    )


def has(docker: Path, name: str, manifest: str) -> str:
    """Let the registry have this under a name; its digest."""
    Path(f"{docker}.{name.replace('/', '_')}").write_text(manifest)
    return f"sha256:{hashlib.sha256(manifest.encode()).hexdigest()}"


def test_every_image_from_outside_is_pinned_by_digest() -> None:
    stages = {"scratch"}
    from_outside = 0
    for image, stage in re.findall(r"^FROM (\S+)(?: AS (\S+))?$", DOCKERFILE, re.MULTILINE):
        stages.add(stage)
        # Which of the stages it is, a build argument says.
        if image in stages or image in ("${CUDA_DEVEL}", "${BACKEND}-devel"):
            continue
        from_outside += 1
        if image != "${BASE}${BASE_DIGEST:+@}${BASE_DIGEST}":
            assert re.fullmatch(r"[^@]+:[^@]+@sha256:[0-9a-f]{64}", image), image
    found = bases.written(DOCKERFILE)
    assert len(found) == from_outside == len(re.findall(r"sha256:[0-9a-f]{64}", DOCKERFILE))
    for base in found:
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", base.digest), base
    assert bases.anew(DOCKERFILE, {}) == DOCKERFILE


def test_what_copies_from_outside_copies_from_a_stage() -> None:
    """An image named by COPY --from or a mount would be pinned by nothing."""
    stages = set(re.findall(r"^FROM .* AS (\S+)$", DOCKERFILE, re.MULTILINE))
    assert set(re.findall(r"(?:--from|[ ,]from)=([^\s,]+)", DOCKERFILE)) <= stages
    assert "# syntax=" not in DOCKERFILE


def test_only_digests_are_rewritten() -> None:
    plain = Base("localhost:5000/plain:1", "")
    assert bases.written(TEXT) == [Base("ubuntu:24.04", OLD), Base("some/cuda:12.8.1", OLD), plain]
    new = f"sha256:{'a' * 64}"
    expected = TEXT.replace("plain:1\n", f"plain:1@{new}\n").replace(
        f"cuda:12.8.1@{OLD} AS", f"cuda:12.8.1@{new} AS"
    )
    after = bases.anew(TEXT, {"some/cuda:12.8.1": new, plain.name: new, "x:1": new})
    assert after == expected
    assert bases.anew(after, {"ubuntu:24.04": new}) == expected.replace(
        f"BASE_DIGEST={OLD}", f"BASE_DIGEST={new}"
    )
    empty = TEXT.replace(f"BASE_DIGEST={OLD}", "BASE_DIGEST=")
    assert bases.written(empty)[0] == Base("ubuntu:24.04", "")
    assert bases.anew(empty, {"ubuntu:24.04": OLD}) == TEXT


def test_a_dockerfile_without_bases_is_refused() -> None:
    with pytest.raises(RigError, match="names no base image of the usual form; write one as"):
        bases.written("FROM scratch\nFROM base AS x\n")


def test_pin_writes_what_changed_and_tells_both(project: Path, docker: Path) -> None:
    path = project / bases.DOCKERFILE
    path.chmod(0o640)
    manifest = '{"schemaVersion": 2, "manifests": []}'
    new = has(docker, "some/cuda:12.8.1", manifest)
    has(docker, "ubuntu:24.04", manifest + "\n")
    other = has(docker, "ubuntu:24.04", manifest + " ")
    has(docker, "localhost:5000/plain:1", manifest)
    done = pin(project)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"ubuntu:24.04: from {OLD} to {other}",
        f"some/cuda:12.8.1: from {OLD} to {new}",
        f"localhost:5000/plain:1: from no digest to {new}",
        f"wrote {path}; images are built anew from it",
    ]
    digests = [base.digest for base in bases.written(path.read_text())]
    assert digests == [other, new, new]
    assert path.stat().st_mode & 0o777 == 0o640
    before = path.stat().st_mtime_ns
    done = pin(project)
    assert done.stdout.count(": as written, sha256:") == len(done.stdout.splitlines()) == 3
    assert path.stat().st_mtime_ns == before
    assert sorted(entry.name for entry in project.iterdir()) == ["Dockerfile", "common", "scripts"]


def test_one_that_cannot_be_had_stays_and_the_others_are_written(
    project: Path, docker: Path
) -> None:
    new = has(docker, "ubuntu:24.04", '{"schemaVersion": 2}')
    has(docker, "localhost:5000/plain:1", "<!doctype html><title>Log in</title>")
    done = pin(project)
    assert done.returncode == 1
    path = project / bases.DOCKERFILE
    assert done.stderr == (
        f"error: 2 of 3 base images stay as {path} has them; run make pin again where their "
        "registry answers\n"
    )
    assert "some/cuda:12.8.1: not to be had: some/cuda:12.8.1: not found\n" in done.stdout
    assert "plain:1: not to be had: docker buildx imagetools answered with no manifest" in (
        done.stdout
    )
    assert path.read_text() == bases.anew(TEXT, {"ubuntu:24.04": new})


@pytest.mark.parametrize("answer", ["", "{}", "[]", "null", "[" * 100_000, '{"schemaVersion": 2'])
def test_what_is_no_manifest_is_no_digest(docker: Path, answer: str) -> None:
    has(docker, "a:1", answer)
    with pytest.raises(RigError, match="answered with no manifest"):
        bases.look("a:1")


def test_a_reason_brings_no_escapes_to_the_terminal(docker: Path) -> None:
    docker.write_text("#!/bin/sh\nprintf 'ERROR: \\033[2Jgone %0500d' 1 >&2; exit 1\n")
    with pytest.raises(RigError) as caught:
        bases.look("a:1")
    assert "\\x1b[2Jgone" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_registry_that_does_not_answer(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker.write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(bases, "ANSWER_S", 0.1)
    with pytest.raises(RigError, match=r"no answer within 0\.1 s"):
        bases.look("a:1")


def test_without_docker_or_buildx_nothing_is_written(
    project: Path, docker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(docker, "ubuntu:24.04", '{"schemaVersion": 2}')
    Path(f"{docker}.buildx").write_text("1")
    done = pin(project)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: Docker has no buildx, by which registries are asked; install "
        "docker-buildx-plugin (on Debian: docker-buildx)\n"
    )
    monkeypatch.setenv("PATH", str(docker.parent / "none"))
    done = pin(project)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: Docker cannot be run (No such file or directory)")
    assert done.stderr.count("\n") == 1
    assert (project / bases.DOCKERFILE).read_text() == TEXT
