"""Asking: plain HTTP requests to a server of ours. No other file makes them.

Never through a proxy, whatever the environment says, and with the key the server was started with.
"""

import json
import os
import time
from dataclasses import dataclass
from typing import Any

import requests
import urllib3

from common.errors import RigError

KEY = "LLAMA_API_KEY"
LIMIT_BYTES = 64 << 20
"""an answer without end must not fill the memory"""


@dataclass(frozen=True)
class Answer:
    status: int
    kind: str
    """its Content-Type"""
    text: str


def key() -> str | None:
    """The key to send: the first that LLAMA_API_KEY holds, which may be a list with commas."""
    return next(iter(keys(os.environ.get(KEY, ""))), None)


def keys(text: str) -> list[str]:
    """The keys in the first line of a variable or file that has any."""
    for line in text.splitlines():
        if found := [part for part in line.split(",") if part.strip()]:
            return found
    return []


def ask(url: str, path: str, body: object = None, timeout_s: float = 5) -> Answer:
    """What the server at `url` answers, whatever its status; a `body` is posted as JSON.

    Raises RigError, in one line, if no whole answer comes in time.
    """
    end = time.monotonic() + timeout_s
    where = f"{url}{path}"
    method = "GET" if body is None else "POST"
    own = key()
    headers = {} if own is None else {"Authorization": f"Bearer {own}".encode()}
    try:
        with (
            _session() as session,
            session.request(
                method,
                where,
                json=body,
                headers=headers,
                timeout=timeout_s,
                stream=True,
                allow_redirects=False,
            ) as reply,
        ):
            pieces: list[bytes] = []
            size = 0
            for piece in reply.iter_content(1 << 16):
                pieces.append(piece)
                size += len(piece)
                if size > LIMIT_BYTES or time.monotonic() > end:
                    raise RigError(f"the answer of {where} does not end")
            text = b"".join(pieces).decode(errors="replace")
            return Answer(reply.status_code, reply.headers.get("Content-Type", ""), text)
    except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
        # requests' own are OSErrors; an address that is none is a ValueError.
        raise RigError(f"{where} did not answer: {error}") from None


def text(url: str, path: str, body: object = None, timeout_s: float = 5) -> str:
    """The text of a good answer. Raises RigError for any other."""
    answer = ask(url, path, body, timeout_s)
    if answer.status in (401, 403):
        raise RigError(
            f"{url}{path} refuses our key (HTTP {answer.status})",
            fix=f"set {KEY} to a key that the server was started with",
        )
    if answer.status != 200:
        said = " ".join(answer.text.split())[:200]
        raise RigError(f"{url}{path} did not answer: HTTP {answer.status} {said}".rstrip())
    return answer.text


def value(url: str, path: str, body: object = None, timeout_s: float = 5) -> dict[str, Any]:
    """The JSON object of a good answer. Raises RigError for any other."""
    try:
        found = json.loads(text(url, path, body, timeout_s))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RigError(f"{url}{path} answered with something else than a JSON object")
    return found


def _session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # neither proxies nor .netrc
    return session
