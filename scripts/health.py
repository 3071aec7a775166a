"""Exit 0 if the server in this container is ready and works, 1 if not. For Docker's health check.

/health answers as long as the program lives. So now and then an idle server is asked for a token,
and a busy one must have made progress since the last look. After ten minutes without either the
container is ended, in order, so that Docker starts it again. Needs the standard library only, and
starts fast: Docker calls it every 30 seconds.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import sys
import time
import urllib.request
from os import kill
from pathlib import Path
from types import FrameType
from typing import NoReturn

SECRET = Path("/run/secrets/api_key")
BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "cache_prompt": False}
LIMIT_S = 4.0  # of all questions together; Docker's own limit is 5
ASK_S = 300.0  # an idle server is asked for a token this often
WAIT_S = 90.0  # this long it may be too busy to answer: a large batch on a slow processor
END_S = 600.0
FIRST = Path("/proc/1")
COUNTERS = ("n_decode_total", "prompt_tokens_total", "requests_processing", "requests_deferred")


def body() -> int:
    """Look, and judge by what was seen before."""
    before = read()
    now = clock()
    try:
        seen = {**look(before, now), "worked": now}
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"the server does not work: {error}", file=sys.stderr)
        worked = float(before.get("worked", -END_S * 10))
        if "worked" in before and now - worked > END_S:
            end_container()
        return int(now - worked > WAIT_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    write(seen)
    return 0


def look(before: dict[str, float], now: float) -> dict[str, float]:
    """What is seen of a server that works; raises an error if it does not."""
    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    get("/health")
    if now - before.get("asked", -ASK_S) < ASK_S:
        return before
    metrics = get("/metrics")
    found = {name: number(metrics, name) for name in COUNTERS}
    if found["requests_processing"] + found["requests_deferred"] > 0:
        moved = any(found[name] != before.get(name) for name in COUNTERS[:2])
        if not moved:
            raise ValueError("it is busy with requests and makes no progress")
        return {**before, **found}
    get("/v1/chat/completions", BODY)
    return {**found, "asked": now}


def get(path: str, content: object = None) -> str:
    """The text of a good answer of our own server: never through a proxy."""
    headers = {"Content-Type": "application/json"}
    if key := first_key():
        headers["Authorization"] = f"Bearer {key}"
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(address() + path, data, headers)  # noqa: S310 (our own)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=LIMIT_S) as reply:
        return str(reply.read(1 << 20).decode(errors="replace"))


def address() -> str:
    host = os.environ.get("HOST", "")
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    if not (port := os.environ.get("PORT")):
        raise ValueError("PORT is not set, so nobody knows where to ask it")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def first_key() -> str:
    """The key that clients send; compose hands it over as a file."""
    text = os.environ.get("LLAMA_API_KEY", "")
    with contextlib.suppress(OSError):
        text = text or SECRET.read_text()
    keys = [part for line in text.splitlines() for part in line.split(",") if part.strip()]
    return keys[0] if keys else ""


def number(metrics: str, name: str) -> float:
    if not (match := re.search(rf"^llamacpp:{name} (\S+)$", metrics, re.MULTILINE)):
        raise ValueError(f"/metrics has no {name}")
    return float(match[1])


def too_late(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise TimeoutError(f"no answer within {LIMIT_S:g} s")


def end_container() -> None:
    """Tell the container's first process to end, if that is ours."""
    with contextlib.suppress(OSError):
        if b"/scripts/entry.py" in (line := (FIRST / "cmdline").read_bytes()) or (
            b"/scripts/serve.py" in line
        ):
            print(f"nothing for {END_S:g} s: ending this container", file=sys.stderr)
            kill(1, signal.SIGTERM)


def clock() -> float:
    """Seconds that no setting of the clock changes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def state() -> Path | None:
    cache = os.environ.get("GEMMA_RIGS_CACHE")
    return Path(cache) / "health.json" if cache else None


def read() -> dict[str, float]:
    """What an earlier look at this start of the container saw."""
    if (file := state()) is None:
        return {}
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        seen = {str(key): float(value) for key, value in json.loads(file.read_text()).items()}
        return seen if seen.get("start") == start() else {}
    return {}


def write(seen: dict[str, float]) -> None:
    if file := state():
        with contextlib.suppress(OSError):  # then the next look knows nothing of this one
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = file.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps({**seen, "start": start()}))
            part.replace(file)


def start() -> float:
    """When the first process began: a state file may be older than that."""
    return float((FIRST / "stat").read_text().rpartition(")")[2].split()[19])


if __name__ == "__main__":
    sys.exit(body())
