"""Questions: the files of the two accuracy tests, brought to the cache and checked."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import requests

from common import places
from common.digest import sha256
from common.errors import RigError
from common.kinds.accuracy.tests import bfcl, gsm8k

GSM8K_URL = f"https://raw.githubusercontent.com/{gsm8k.REPOSITORY}/{gsm8k.COMMIT}/{gsm8k.FILE}"
FETCH_S = 60.0


def folder() -> Path:
    return places.cache() / "questions"


def load_gsm8k() -> tuple[list[gsm8k.Question], str]:
    """The GSM8K questions and the file's SHA-256.

    GSM8K_PATH names a file to use as it is (its digest is recorded); without it, the published
    file is fetched once and must have the pinned digest. Raises RigError.
    """
    own = os.environ.get("GSM8K_PATH")
    if own:
        path = Path(own)
        return gsm8k.load(path, None), sha256(path)
    path = folder() / f"gsm8k-test-{gsm8k.COMMIT[:12]}.jsonl"
    if not path.is_file():
        _fetch_gsm8k(path)
    return gsm8k.load(path), gsm8k.SHA256


def _fetch_gsm8k(path: Path) -> None:
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        reply = requests.get(GSM8K_URL, timeout=FETCH_S)
        reply.raise_for_status()
    except requests.RequestException as error:
        reason = type(error).__name__ if error.response is None else error
        raise RigError(
            f"GSM8K could not be fetched from {GSM8K_URL} ({reason}); bring the file to this host "
            "by other means and name it: make accuracy GSM8K_PATH=/path/to/test.jsonl"
        ) from None
    part.write_bytes(reply.content)
    gsm8k.load(part)
    part.replace(path)


def load_bfcl() -> tuple[list[bfcl.Question], str]:
    """The BFCL questions, and the SHA-256 of the questions' and the answers' file, joined by +.

    BFCL_PATH names the wheel, or a folder with its data, to use as it is; without it, the pinned
    wheel is fetched once from the package index and its files must have the pinned digests.
    Raises RigError.
    """
    own = os.environ.get("BFCL_PATH")
    published = "+".join(bfcl.SHA256.values())
    if own:
        try:
            return bfcl.load(Path(own)), published
        except RigError:
            return bfcl.load(Path(own), None), _digest(Path(own))
    name, _, version = bfcl.REQUIREMENT.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(folder().glob(pattern)):
        _fetch_bfcl(pattern)
    return bfcl.load(next(folder().glob(pattern))), published


def _digest(source: Path) -> str:
    if not source.is_dir():
        return sha256(source)
    return "+".join(sha256(source / name) for name in bfcl.SHA256)


def _fetch_bfcl(pattern: str) -> None:
    folder().mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", bfcl.REQUIREMENT, "--dest"]
    with TemporaryDirectory(dir=folder(), prefix=".fetch-") as temporary:
        done = subprocess.run([*command, temporary], capture_output=True, text=True)
        wheels = list(Path(temporary).glob(pattern))
        if done.returncode != 0 or len(wheels) != 1:
            errors = [line for line in done.stderr.splitlines() if "ERROR" in line]
            raise RigError(
                f"{bfcl.REQUIREMENT} from the package index: {(errors or ['no reason given'])[0]}; "
                "bring the wheel to this host and name it: make accuracy BFCL_PATH=/path/to/it.whl"
            )
        bfcl.load(wheels[0])
        wheels[0].rename(folder() / wheels[0].name)
