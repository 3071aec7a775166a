"""Listening: which sockets take connections at an address, and whose they are."""

import contextlib
import ipaddress
import re
import socket
import sys
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"
Address = IPv4Address | IPv6Address


def sockets_at(host: str, port: int) -> set[int]:
    """The inodes of all sockets that may take a connection to this address.

    Several may: the kernel shares connections out among sockets with SO_REUSEPORT, which
    llama-server sets.
    """
    wanted = {_plain(str(found[4][0])) for found in socket.getaddrinfo(host, port)}
    everywhere = any(address.is_unspecified for address in wanted)
    found = set()
    for line in _lines():
        fields = line.split()
        address, _, number = fields[1].partition(":")
        if fields[3] != LISTENS or int(number, 16) != port:
            continue
        bound = _address(address)
        if everywhere or bound.is_unspecified or bound in wanted:
            found.add(int(fields[9]))
    return found


def sockets_of(pids: Iterable[int]) -> set[int]:
    """The inodes of all sockets that these processes hold."""
    found = set()
    for pid in pids:
        for link in _open_files(Path(f"/proc/{pid}/fd")):
            if match := re.fullmatch(r"socket:\[(\d+)\]", link):
                found.add(int(match[1]))
    return found


def _open_files(folder: Path) -> list[str]:
    """What the open files of a process are; those that closed meanwhile are left out."""
    found = []
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            with contextlib.suppress(OSError):
                found.append(str(file.readlink()))
    return found


def _lines() -> list[str]:
    """The kernel's tables without their headings; a host without IPv6 has only one."""
    lines = []
    for table in TABLES:
        if table.exists():
            lines += table.read_text().splitlines()[1:]
    return lines


def _address(text: str) -> Address:
    """As the kernel writes it: words of 32 bits in the order of this machine."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    return _plain_bytes(b"".join(word.to_bytes(4, sys.byteorder) for word in words))


def _plain_bytes(packed: bytes) -> Address:
    return _plain(str(ipaddress.ip_address(packed)))


def _plain(text: str) -> Address:
    """An IPv4 address in the clothes of IPv6 is that IPv4 address."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
