"""Bases: the images from outside that the Dockerfile builds on, each with its tag and its digest.

A registry is asked through Docker's buildx, which knows the user's log-ins and mirrors. It needs no
running Docker engine.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from common.errors import RigError

DOCKERFILE = "Dockerfile"
ANSWER_S = 120
"""how long a registry may take to answer"""
LONGEST = 400
"""of what buildx says when it fails, so many characters"""
_ARGUMENT = re.compile(r"^ARG BASE=(\S+)\nARG BASE_DIGEST=(\S*)$", re.MULTILINE)
# A name with a tag. Stages have none, and what a $ stands for is no name.
_FROM = re.compile(r"^FROM ([^\s@$]+:[^\s@$]+)(?:@(\S+))?(?= AS |$)", re.MULTILINE)


@dataclass(frozen=True)
class Base:
    """An image that the Dockerfile names."""

    name: str
    """with its tag"""
    digest: str
    """what is written beside it; empty if nothing is"""


def written(dockerfile: str) -> list[Base]:
    """The bases in the text of a Dockerfile. Raises RigError if none has the usual form."""
    found = [Base(match[1], match[2] or "") for match in _ARGUMENT.finditer(dockerfile)]
    found += [Base(match[1], match[2] or "") for match in _FROM.finditer(dockerfile)]
    if not found:
        raise RigError(
            "the Dockerfile names no base image of the usual form",
            fix="write one as ARG BASE= with ARG BASE_DIGEST= below it, or as FROM NAME:TAG@DIGEST",
        )
    return found


def anew(dockerfile: str, digests: Mapping[str, str]) -> str:
    """The text of a Dockerfile with these digests, by name; every other character as it was."""

    def argument(match: re.Match[str]) -> str:
        return f"ARG BASE={match[1]}\nARG BASE_DIGEST={digests.get(match[1], match[2])}"

    def first_line(match: re.Match[str]) -> str:
        digest = digests.get(match[1], match[2])
        return f"FROM {match[1]}@{digest}" if digest else match[0]

    return _FROM.sub(first_line, _ARGUMENT.sub(argument, dockerfile))


def check_docker() -> None:
    """Raises RigError if there is no Docker with buildx to ask a registry with."""
    done = _docker(["buildx", "version"])
    if done.returncode != 0:
        raise RigError(
            "Docker has no buildx, by which registries are asked",
            fix="install docker-buildx-plugin (on Debian: docker-buildx)",
        )


def look(name: str) -> str:
    """The digest that the registry has for this name and tag now: of the index of all platforms,
    where there is one. Raises RigError if it cannot be had."""
    # With --format it would fetch each platform's part too, and registries count what is fetched.
    done = _docker(["buildx", "imagetools", "inspect", "--raw", name])
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        reason = lines[-1].removeprefix("ERROR: ")[:LONGEST]
        raise RigError(reason if reason.isprintable() else repr(reason))
    try:
        manifest = json.loads(done.stdout)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or "schemaVersion" not in manifest:
        raise RigError("docker buildx imagetools answered with no manifest")
    return f"sha256:{hashlib.sha256(done.stdout).hexdigest()}"


def _docker(arguments: list[str]) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            ["docker", *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=ANSWER_S,
        )
    except subprocess.TimeoutExpired:
        raise RigError(f"no answer within {ANSWER_S} s") from None
    except OSError as error:
        raise RigError(
            f"Docker cannot be run ({error.strerror}), and registries are asked by its buildx",
            fix="install Docker with docker-buildx-plugin",
        ) from None
