"""Ports for tests: each belongs to one test until it ends, whoever else runs tests meanwhile."""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 1000


@contextmanager
def claimed() -> Iterator[int]:
    """A port that nobody uses, and that no other test is given until this ends.

    The claim is a name in the kernel, held by an open socket: it goes when the process does. Ports
    that the kernel gives to outgoing connections are left alone.
    """
    low, high = map(int, _RANGE.read_text().split())
    possible = [port for port in range(10_000, 65_536) if not low <= port <= high]
    chance = random.Random()  # noqa: S311 (of its own: tests may fix the seed of the common one)
    for _ in range(_TRIES):
        port = chance.choice(possible)
        with socket.socket(socket.AF_UNIX) as claim:
            try:
                claim.bind(f"\0gemma-rigs-test-port-{port}")
            except OSError:
                continue
            if _is_free(port):
                yield port
                return
    raise OSError("no port is free for tests")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
