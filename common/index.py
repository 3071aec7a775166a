"""Index: one plain file of the package index that the user's pip settings name, as it lies there.

pip itself runs a source release's build program before it says what it has fetched; here nothing
runs. Needs the standard library only: it serves before anything is installed. A name and password
for the index come from its address or ~/.netrc; pip's keyring is not asked.
"""

import base64
import html.parser
import http.client
import json
import netrc
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from common import uv
from common.errors import RigError

DEFAULT = "https://pypi.org/simple"
SCHEMES = ("https", "http", "file")
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
MOST_PAGE = 32 << 20  # bytes of an index's page
MOST_FILE = 1 << 30
TIMEOUT_S = 60.0


def source_release(folder: Path, name: str, version: str) -> Path:
    """Bring the archive NAME-VERSION.tar.gz to `folder`. Nothing of it is run or checked.

    Raises RigError with each place's reason if it cannot be had.
    """
    told = uv.pip_settings("download")
    reasons = []
    for where, address in _places(told, name):
        try:
            for link in _links(address, told):
                if _is_release(link, name, version):
                    out = folder / f"{name}-{version}.tar.gz"
                    _save(link, out, told)
                    return out
            reasons.append(f"{_shown(where)} has no such release")
        except (OSError, ValueError, http.client.HTTPException) as error:
            reasons.append(f"{_shown(where)}: {_reason(error)}")
    raise RigError("; ".join(reasons) or "pip's settings name no place for it")


def versions(name: str) -> set[str]:
    """The versions of which a place has a wheel, but for those before a release (rc1).

    Raises RigError with each place's reason if there are none.
    """
    told = uv.pip_settings("download")
    found: set[str] = set()
    reasons = []
    for where, address in _places(told, name):
        try:
            found |= {version for link in _links(address, told) for version in _wheel(link, name)}
        except (OSError, ValueError, http.client.HTTPException) as error:
            reasons.append(f"{_shown(where)}: {_reason(error)}")
    if not found:
        raise RigError("; ".join(reasons) or f"no place has {name}")
    return found


def _places(told: dict[str, str], name: str) -> Iterator[tuple[str, str]]:
    """Each place pip would look at, and the address of its list of files."""
    for link in told.get("find-links", "").split():
        local = Path(os.path.expanduser(link)).absolute()  # noqa: PTH111 (no error without a home)
        yield link, link if "://" in link else local.as_uri()
    if told.get("no-index", "0") not in ("1", "true", "yes", "on"):
        indexes = [told.get("index-url") or DEFAULT, *told.get("extra-index-url", "").split()]
        for index in indexes:
            yield index, f"{index.rstrip('/')}/{_normal(name)}/"


def _links(address: str, told: dict[str, str]) -> list[str]:
    """The addresses of the files that a page, or a folder of this host, lists."""
    if urlsplit(address).scheme == "file":
        folder = Path(unquote(urlsplit(address).path))
        if folder.is_dir() and not (folder / "index.html").is_file():
            return [path.absolute().as_uri() for path in folder.iterdir()]
        address = (folder / "index.html" if folder.is_dir() else folder).as_uri()
    with _opened(address, told) as (page, base, kind):
        text = page.read(MOST_PAGE + 1)
    if len(text) > MOST_PAGE:
        raise ValueError("its page does not end")
    try:
        return _listed(text, base, kind)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
        raise ValueError("its page makes no sense") from None


def _listed(text: bytes, base: str, kind: str) -> list[str]:
    if "json" not in kind:
        anchors = _Anchors()
        anchors.feed(text.decode(errors="replace"))
        return [urljoin(base, link) for link in anchors.links]
    return [urljoin(base, str(file["url"])) for file in json.loads(text)["files"]]


class _Anchors(html.parser.HTMLParser):
    """Collects where a page's links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for key, value in attrs if tag == "a" and key == "href" and value]


def _is_release(link: str, name: str, version: str) -> bool:
    file = unquote(urlsplit(link).path).rpartition("/")[2]
    stem = file.removesuffix(".tar.gz")
    return stem != file and _normal(stem) == _normal(f"{name}-{version}")


def _wheel(link: str, name: str) -> list[str]:
    """The version a wheel of that name is of; none if it is another file."""
    parts = unquote(urlsplit(link).path).rpartition("/")[2].split("-")
    ours = len(parts) > 4 and parts[-1].endswith(".whl") and _normal(parts[0]) == _normal(name)
    return [parts[1]] if ours and re.fullmatch(r"\d+(\.\d+)*", parts[1]) else []


def _save(link: str, out: Path, told: dict[str, str]) -> None:
    left = MOST_FILE
    with _opened(link, told) as (source, _base, _kind), out.open("wb") as file:
        while piece := source.read(1 << 20):
            left -= len(piece)
            if left < 0:
                raise ValueError(f"the file is longer than {MOST_FILE:,} bytes")
            file.write(piece)


class _opened:  # noqa: N801 (used like a function)
    """The bytes at an address, the address they came from in the end, and their type."""

    def __init__(self, address: str, told: dict[str, str]) -> None:
        parts = urlsplit(address)
        if parts.scheme not in SCHEMES:
            raise ValueError(f"an address that begins with {parts.scheme}: is not fetched")
        host = parts.netloc.rpartition("@")[2]
        plain = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
        request = urllib.request.Request(plain, headers={"Accept": ACCEPT})  # noqa: S310
        if secret := _secret(parts.username, parts.password, parts.hostname or ""):
            request.add_unredirected_header("Authorization", f"Basic {secret}")
        handlers: list[Any] = [urllib.request.HTTPSHandler(context=_context(told, host))]
        if told.get("proxy"):
            proxies = dict.fromkeys(("http", "https"), told["proxy"])
            handlers.append(urllib.request.ProxyHandler(proxies))
        self._answer = urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S)

    def __enter__(self) -> tuple[BinaryIO, str, str]:
        kind = self._answer.headers.get_content_type()
        return self._answer, self._answer.geturl(), kind

    def __exit__(self, *_: object) -> None:
        self._answer.close()


def _context(told: dict[str, str], host: str) -> ssl.SSLContext:
    """The certificates that pip is told to trust, and the system's."""
    context = ssl.create_default_context()
    own = told.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE")
    if own:
        context.load_verify_locations(**{"capath" if Path(own).is_dir() else "cafile": own})
    if told.get("client-cert"):
        context.load_cert_chain(told["client-cert"])
    trusted = told.get("trusted-host", "").split()
    if host in trusted or host.partition(":")[0] in trusted:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _secret(user: str | None, password: str | None, host: str) -> str:
    """Name and password as a header carries them; empty if there are none."""
    if user is None:
        try:
            found = netrc.netrc().authenticators(host)
        except (OSError, netrc.NetrcParseError):
            found = None
        if found is None:
            return ""
        user, _account, password = found
    return base64.b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()


def _normal(name: str) -> str:
    """As the index compares names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _shown(place: str) -> str:
    """A place without the password in it."""
    return re.sub(r"//[^/]*@", "//", place)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered {error.code}"
    if isinstance(error, urllib.error.URLError):
        return _shown(str(getattr(error.reason, "strerror", None) or error.reason))
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return _shown(str(error)) or type(error).__name__
