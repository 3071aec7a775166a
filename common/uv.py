"""uv: installs packages in seconds. Where it comes from, and pip's settings in its words.

Needs the standard library only: it runs before anything is installed.
"""

import configparser
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from common import pip, tool_folder
from common.errors import RigError

STORE = Path("/etc/ssl/certs/ca-certificates.crt")


class UvError(Exception):
    """uv cannot be had or failed; pip can still do it. The message is one line."""


def find(lock: Path) -> Path | None:
    """uv on PATH, else the one that `bring` has put into the cache."""
    own = shutil.which("uv")
    if own:
        return Path(own)
    program = tool_folder.place("uv", lock) / "bin" / "uv"
    return program if program.is_file() else None


def bring(python: Path, lock: Path) -> Path:
    """Install the uv of the lock into the cache, with the pip of that Python.

    Raises UvError if pip cannot have it, or has no ready-made one for this machine.
    """
    home = tool_folder.place("uv", lock)
    try:
        tool_folder.bring(home, lock, python)
    except RigError as error:
        raise UvError(f"no uv from the package index ({error})") from None
    return home / "bin" / "uv"


def run(program: Path, *arguments: str) -> None:
    """Run uv with pip's settings. Raises UvError with its reason."""
    try:
        done = subprocess.run(
            [str(program), *arguments, *_flags(arguments)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment()},
        )
    except OSError as error:
        raise UvError(f"{program} does not run ({error.strerror})") from None
    if done.returncode != 0:
        raise UvError(f"uv failed ({pip.last_error(done.stderr)})")


def _flags(arguments: tuple[str, ...]) -> list[str]:
    if arguments[0] == "pip" and pip_settings().get("no-index", "0") in ("1", "true", "yes", "on"):
        return ["--no-index"]  # uv has no environment variable for it
    return []


def environment() -> dict[str, str]:
    """What pip is told about indexes, certificates and proxy, in uv's words.

    uv reads none of pip's settings, and whoever needs a mirror has usually told only pip. What the
    user has told uv itself stays.
    """
    told = pip_settings()
    extra = [
        url for url in told.get("extra-index-url", "").split() if urlsplit(url).scheme != "file"
    ]
    links = [
        link for link in told.get("find-links", "").split() if "://" in link or Path(link).is_dir()
    ]
    certificates = own_certificates(told)
    system = "true" if STORE.is_file() and not certificates else ""
    found = {
        "UV_DEFAULT_INDEX": told.get("index-url", ""),
        "UV_INDEX": " ".join(extra),
        # The lock's hashes say which file is meant, so that any index may give it.
        "UV_INDEX_STRATEGY": "unsafe-best-match" if extra else "",
        "UV_FIND_LINKS": ",".join(links),
        "UV_INSECURE_HOST": " ".join(told.get("trusted-host", "").split()),
        "UV_HTTP_TIMEOUT": told.get("timeout", ""),
        "HTTPS_PROXY": told.get("proxy", ""),
        "HTTP_PROXY": told.get("proxy", ""),
        "SSL_CERT_FILE": certificates,
        # pip trusts the system's certificates too; the second is what an older uv calls the first.
        "UV_SYSTEM_CERTS": system,
        "UV_NATIVE_TLS": system,
    }
    return {name: value for name, value in found.items() if value and not _is_set(name)}


def own_certificates(told: dict[str, str]) -> str:
    """The file of certificates that pip is told to trust instead of the system's; "" for none."""
    variables = filter(None, map(os.environ.get, ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")))
    return told.get("cert") or next(variables, "")


OTHER_NAMES = {
    "UV_DEFAULT_INDEX": "UV_INDEX_URL",
    "UV_INDEX": "UV_EXTRA_INDEX_URL",
    "UV_SYSTEM_CERTS": "UV_NATIVE_TLS",
    "UV_NATIVE_TLS": "UV_SYSTEM_CERTS",
    "HTTPS_PROXY": "https_proxy",
    "HTTP_PROXY": "http_proxy",
}


def _is_set(name: str) -> bool:
    return name in os.environ or OTHER_NAMES.get(name, name) in os.environ


def pip_settings(command: str = "install") -> dict[str, str]:
    """pip's settings for a command, from its files and then its environment variables."""
    sections: dict[str, dict[str, str]] = {"global": {}, command: {}}
    for path in _pip_files():
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip says what is wrong with it
        for name, settings in sections.items():
            if parser.has_section(name):
                settings.update({k.replace("_", "-"): v for k, v in parser.items(name)})
    variables = {
        name[4:].lower().replace("_", "-"): value
        for name, value in os.environ.items()
        if name.startswith("PIP_") and value
    }
    return {**sections["global"], **sections[command], **variables}


def _pip_files() -> list[Path]:
    """Where pip looks; a later file beats an earlier one."""
    own = os.environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return []
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 (a user without a home is no error here)
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    shared = (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    files = [Path(folder) / "pip" / "pip.conf" for folder in shared if folder]
    files.append(Path("/etc/pip.conf"))
    if own and Path(own).exists():
        return [*files, Path(own)]
    return [*files, home / ".pip" / "pip.conf", xdg / "pip" / "pip.conf"]
