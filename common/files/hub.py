"""Hub: one file on a Hugging Face hub: what the hub says of it, and its bytes.

What the hub says comes from huggingface_hub. The bytes come over plain requests: its own
downloader writes each try to a new temporary file and deletes that when the try fails, so a killed
download of 5 GB would start again from nothing.
"""

import email.utils
import errno
import ipaddress
import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase

from common.errors import RigError

Say = Callable[[str], None]
Progress = Callable[[str, int, int], None]
"""called with the file's name, bytes that are here, bytes in all"""
T = TypeVar("T")

ENDPOINT = "https://huggingface.co"
TIMEOUT_S = (10.0, 60.0)  # to connect; without a byte
TRIES = 6  # in a row without a new byte: 31 s of waiting in all
LONGEST_WAIT_S = 120.0  # a Retry-After beyond this is for the user to wait for
PASSING = (408, 429, 500, 502, 503, 504)
PIECE = 1 << 16  # bytes; what has come of a piece is lost when the connection breaks


@dataclass(frozen=True)
class HubFile:
    """A file as tpu.env names it."""

    repo: str
    name: str
    revision: str | None
    key: str
    """what its settings begin with: MODEL or SPEC_DRAFT"""
    name_key: str
    """the setting that names it: MODEL or SPEC_DRAFT_MODEL"""
    place_key: str = "MODELS_DIR"
    """the setting that says on which disk it comes"""


@dataclass(frozen=True)
class Remote:
    """What the hub says of a file at one commit."""

    file: HubFile
    url: str
    size: int
    """bytes"""
    commit: str | None
    sha256: str | None
    """of the whole file, as the hub declares it for large files"""


class _PassingError(Exception):
    """A failure that may not happen again; `wait` is how many seconds the server asked for."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


def look(file: HubFile, say: Say) -> Remote:
    """Ask the hub for size, commit and SHA-256. Raises RigError."""
    return _patiently(lambda: _look(file), say, lambda: 0)


def glance(file: HubFile) -> Remote:
    """Like `look`, but it does not try twice: whether the hub can be reached at all."""
    try:
        return _look(file)
    except _PassingError as error:
        raise RigError(str(error)) from None


def download(remote: Remote, part: Path, say: Say, progress: Progress) -> None:
    """Bring `part` to its full length, going on from what it holds already.

    Raises RigError; what has come stays in `part`, unless it cannot be of this file.
    """
    _open(part).close()  # it is there from here on, and ours

    def have() -> int:
        return part.stat().st_size if part.is_file() else 0

    if have() > remote.size:
        part.unlink()
    _patiently(lambda: _stream(remote, part, have(), progress), say, have)


def _patiently(attempt: Callable[[], T], say: Say, have: Callable[[], int]) -> T:
    """Try again after passing failures; a try that brought new bytes starts the count anew."""
    tries, most = 0, have()
    while True:
        try:
            return attempt()
        except _PassingError as error:
            if have() > most:
                tries, most = 0, have()
            tries += 1
            wait = max(2.0 ** (tries - 1), error.wait or 0.0)
            if wait > LONGEST_WAIT_S:
                raise RigError(
                    f"{error}; it asks to wait {wait:.0f} s. Run this again then"
                ) from None
            if tries == TRIES:
                raise RigError(
                    f"{error}, {TRIES} times in a row; run this again later, it goes on from "
                    "what has come. If it stays so, check the network and HF_ENDPOINT"
                ) from None
            say(f"{error}; trying again in {wait:.0f} s")
            time.sleep(wait)


def _look(file: HubFile) -> Remote:
    address, secret = endpoint(), token()
    # Otherwise the client asks the hub for a list of its own besides, once per process.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    # Imported here: they are slow to load and most commands do not need them.
    from httpx2 import HTTPError
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError

    where = f"{file.repo}/{file.name} at {urlsplit(address).netloc}"
    try:
        url = hf_hub_url(file.repo, file.name, revision=file.revision, endpoint=address)
        found = get_hf_file_metadata(url, token=secret or False, endpoint=address)
        commit = full_commit(found.commit_hash)
        # The bytes are asked for by commit: a branch may move between two tries.
        url = hf_hub_url(file.repo, file.name, revision=commit or file.revision, endpoint=address)
    except HfHubHTTPError as error:
        headers = error.response.headers
        _refuse(file, error.response.status_code, dict(headers.items()))
        raise RigError(f"{where}: the answer makes no sense") from None
    except (HTTPError, OSError, ValueError) as error:
        raise RigError(
            f"{where} cannot be asked for: {_cause(error)}; check the network, HF_ENDPOINT and "
            f"{file.key}_HF"
        ) from None
    if not found.size or found.size < 0:
        raise RigError(
            f"{where}: the server does not say how long the file is, so it is no hub; "
            "check HF_ENDPOINT"
        )
    digest = found.etag if re.fullmatch(r"[0-9a-f]{64}", found.etag or "") else None
    return Remote(file, url, found.size, commit, digest)


def full_commit(said: object) -> str | None:
    """A commit as a hub gives it, if it is one: it comes to be a setting and a folder's name."""
    return said if isinstance(said, str) and re.fullmatch(r"[0-9a-f]{40}", said) else None


def _stream(remote: Remote, part: Path, have: int, progress: Progress) -> None:
    """One request for the bytes from `have` on. Raises _PassingError or RigError."""
    name = remote.file.name
    if have == remote.size:
        return
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with requests.get(
            remote.url, headers=headers, auth=_Bearer(), stream=True, timeout=TIMEOUT_S
        ) as response:
            have = _start(remote, response, part, have)
            with _open(part) as out:
                _resize(out, part, have)
                progress(name, have, remote.size)
                for piece in response.iter_content(PIECE):
                    have += len(piece)
                    if have > remote.size:
                        _wrong_length(remote, part)
                    _write(out, remote.file, part, piece)
                    progress(name, have, remote.size)
                os.fsync(out.fileno())
    except (requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
        raise _PassingError(f"{name}: the connection broke ({_cause(error)})") from None
    except requests.exceptions.SSLError as error:
        raise RigError(f"{name} cannot be fetched: {_cause(error)}") from None
    except requests.ConnectionError as error:
        raise _PassingError(f"{name}: no connection ({_cause(error)})") from None
    except requests.RequestException as error:
        raise RigError(
            f"{name} cannot be fetched from {remote.file.repo}: {_cause(error)}; check HF_ENDPOINT"
        ) from None
    if have < remote.size:
        raise _PassingError(
            f"{name}: the connection ended early, {have:,} of {remote.size:,} bytes"
        )


def _open(part: Path) -> FileIO:
    """`part` for writing at its end. Raises RigError if what is there may be another file's.

    In a shared folder anyone may leave a link of that name; what it leads to is not written to.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    fix = "remove it, then run this again"
    try:
        out = FileIO(os.open(part, flags, 0o666), "ab")
    except OSError as error:
        # What open says of a link, and of a pipe that nobody reads.
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise RigError(f"{part} is a link or a pipe and was not written to", fix=fix) from None
    found = os.fstat(out.fileno())
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        out.close()
        raise RigError(f"{part} is not a file of its own and was not written to", fix=fix)
    return out


def _start(remote: Remote, response: requests.Response, part: Path, have: int) -> int:
    """Check status and headers; returns the offset at which this answer's bytes begin."""
    file = remote.file
    if response.status_code == 416 and have:
        _start_again(file, part)
    _refuse(file, response.status_code, dict(response.headers.items()))
    if response.headers.get("Content-Type", "").startswith("text/html"):
        raise RigError(
            f"{file.name}: the server sent a web page instead of the file, perhaps a log-in page; "
            "check HF_ENDPOINT and the network"
        )
    begin = 0
    if response.status_code == 206:
        header = response.headers.get("Content-Range", "")
        sent = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)", header, re.I)
        if not sent or int(sent[1]) != have or sent[2] not in ("*", str(remote.size)):
            if have:
                _start_again(file, part)
            raise RigError(
                f"{file.name}: the server sent another part of the file than was asked for, or "
                f"of another length than the {remote.size:,} bytes declared; check HF_ENDPOINT"
            )
        begin = have
    length = response.headers.get("Content-Length", "")
    if re.fullmatch(r"[0-9]{1,18}", length) and begin + int(length) != remote.size:
        _wrong_length(remote, part)
    return begin


def _start_again(file: HubFile, part: Path) -> NoReturn:
    """Mirrors that cannot go on where a download stopped may still send the whole file."""
    part.unlink(missing_ok=True)
    raise _PassingError(f"{file.name}: the server does not go on where it stopped; from the start")


def _wrong_length(remote: Remote, part: Path) -> None:
    part.unlink(missing_ok=True)
    raise RigError(
        f"{remote.file.name}: the hub declares {remote.size:,} bytes, but the server sends a file "
        f"of another length; nothing of it was kept. Check HF_ENDPOINT and "
        f"{remote.file.key}_HF_REVISION"
    )


def _refuse(file: HubFile, status: int, headers: dict[str, str]) -> None:
    """Raise what a status means; return if it is a success.

    Nothing that the server wrote is repeated, but its known error codes: it may echo the token.
    """
    if status in (200, 206):
        return
    low = {name.lower(): value for name, value in headers.items()}
    what = f"{file.repo}/{file.name}: the server answered {status}"
    if status in PASSING:
        raise _PassingError(what, _retry_after(low.get("retry-after", "")))
    state = "HF_TOKEN is set but not accepted" if token() else "HF_TOKEN is not set"
    code = low.get("x-error-code", "")
    if code == "RevisionNotFound":
        fix = f"the revision {file.revision or 'main'} is not there; check {file.key}_HF_REVISION"
    elif code == "EntryNotFound":
        fix = f"the repository has no such file; check {file.name_key} and {file.key}_HF_REVISION"
    elif code == "GatedRepo":
        fix = f"accept its terms on its web page, then set HF_TOKEN ({state})"
    elif status in (401, 403) or code == "RepoNotFound":
        # A hub answers 401 for a repository that does not exist, too.
        fix = (
            f"no such repository, or a private one; check {file.key}_HF, or set HF_TOKEN ({state})"
        )
    elif status == 404:
        fix = (
            f"not found; check {file.key}_HF, {file.name_key}, {file.key}_HF_REVISION and "
            "HF_ENDPOINT"
        )
    else:
        fix = "check HF_ENDPOINT"
    raise RigError(f"{what}: {fix}")


def _retry_after(value: str) -> float | None:
    """Seconds from now; None if the header is missing or makes no sense."""
    if re.fullmatch(r"[0-9]+", value.strip()):
        return min(float(value), 1e9)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, OSError):
        return None


def _write(out: FileIO, file: HubFile, part: Path, piece: bytes) -> None:
    rest = memoryview(piece)
    try:
        while rest:
            rest = rest[out.write(rest) :]
    except OSError as error:
        raise RigError(
            f"{part} cannot be written: {error.strerror}; what has come is kept there. Make room, "
            f"or set {file.place_key} to another disk, then run this again"
        ) from None


def _resize(out: FileIO, part: Path, size: int) -> None:
    """Cut `part` to where the answer begins: to nothing if the server ignores ranges."""
    if part.stat().st_size != size:
        out.truncate(size)


def endpoint() -> str:
    """HF_ENDPOINT, read at each call; the hub's client reads it only when it is loaded."""
    address = (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    if not re.fullmatch(r"https?://[^\s@]+", address) or not _splits(address):
        raise RigError("HF_ENDPOINT: expected an address such as https://huggingface.co")
    return address


def _splits(address: str) -> bool:
    """Whether host and port can be told apart, as the hub's client does while it is loaded."""
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def token() -> str | None:
    """HF_TOKEN. Raises RigError, without its value, if it could not go into a header, or if it
    would be sent to another host unencrypted: once it was read on the way it is too late to say."""
    secret = os.environ.get("HF_TOKEN", "").strip()
    if secret and not re.fullmatch(r"[!-~]+", secret):
        raise RigError("HF_TOKEN holds a space or a character that no token has; set it again")
    address = urlsplit(endpoint())
    if secret and address.scheme == "http" and not _is_loopback(address.hostname or ""):
        raise RigError(
            f"HF_TOKEN would go to {address.netloc} unencrypted and was not sent",
            fix="use https:// in HF_ENDPOINT, or leave the token out: HF_TOKEN= make ...",
        )
    return secret or None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Bearer(AuthBase):
    """The token, for the first request only: requests drops it when a redirect changes the host.

    As a header alone it would be replaced by a .netrc entry.
    """

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if secret := token():
            request.headers["Authorization"] = f"Bearer {secret}"
        return request


def _cause(error: BaseException) -> str:
    """The innermost reason in a chain of errors. Their full text holds signed addresses."""
    reason = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            reason = seen.strerror
        seen = seen.__cause__ or seen.__context__
    return reason
