"""Whose sockets take connections at an address."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from common.serving import listening
from tests.helpers import ports

STRANGER = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen()
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def port() -> Iterator[int]:
    with ports.claimed() as found:
        yield found


def mine(host: str, port: int) -> socket.socket:
    own = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    own.bind((host, port))
    own.listen()
    return own


def strangers(asked: str, bound: str, port: int) -> set[int]:
    """What listens at `asked`, besides us, while another process listens on `bound`."""
    with subprocess.Popen(
        [sys.executable, "-c", STRANGER, bound, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        found = listening.sockets_at(asked, port) - listening.sockets_of([os.getpid()])
        assert found <= listening.sockets_of([other.pid])
        other.communicate()
    return found


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_our_own_is_found(host: str, port: int) -> None:
    with mine(host, port):
        own = listening.sockets_at(host, port)
        assert len(own) == 1
        assert own <= listening.sockets_of([os.getpid()])
    assert listening.sockets_at(host, port) == set()


@pytest.mark.parametrize(
    ("asked", "bound"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "0.0.0.0"),
        ("127.0.0.1", "::"),
        ("0.0.0.0", "127.0.0.1"),
        ("::1", "::1"),
        ("localhost", "127.0.0.1"),
    ],
)
def test_a_stranger_beside_us_is_seen(asked: str, bound: str, port: int) -> None:
    """The kernel lets both listen, and shares the connections out."""
    with mine("127.0.0.1" if asked == "localhost" else asked, port):
        assert len(strangers(asked, bound, port)) == 1


def test_who_listens_on_another_address_takes_none_of_ours(port: int) -> None:
    with mine("127.0.0.1", port):
        assert strangers("127.0.0.1", "127.0.0.2", port) == set()
        assert strangers("127.0.0.1", "::1", port) == set()
