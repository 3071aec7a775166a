"""Pins: the full digest and the resolved revision of a rig's files, written into its tpu.env."""

import re

from common import digest
from common.env_file import rewrite
from common.errors import RigError, disk_says
from common.files import hub, wanted
from common.files.hub import Progress
from common.files.wanted import Say, Wanted
from common.rig import FILE, Rig


def pin(rig: Rig, say: Say, progress: Progress) -> dict[str, str]:
    """Fetch and check what is not fully pinned, and pin it. Returns the settings that were written.

    Raises RigError if a file cannot be had, or if the hub's file is not the one that is here.
    """
    ours = [key for key in rig.overridden if re.match(r"(MODEL|SPEC_DRAFT)(_|$)", key)]
    if ours:
        raise RigError(
            f"{', '.join(ours)} comes from the environment, and a pin belongs to what "
            f"{rig.folder / FILE} says; leave it out"
        )
    changes: dict[str, str] = {}
    for file in wanted.wanted(rig):
        if file.made_here:
            say(f"{file.role} {file.name}: made here, nothing to pin")
        elif _is_pinned(file):
            say(f"{file.role} {file.name}: pinned already")
        else:
            wanted.fetch(rig, say, progress, (file.role,))
            changes |= _pins(file, say)
    if changes:
        rewrite(rig.folder / FILE, changes)
    return changes


def _is_pinned(file: Wanted) -> bool:
    resolved = re.fullmatch(r"[0-9a-f]{40}", file.revision or "") is not None
    return len(file.sha256 or "") == 64 and (resolved or not file.hub)


def _pins(file: Wanted, say: Say) -> dict[str, str]:
    """The settings that pin a file that is here."""
    with disk_says(file.path, "mend that, then run this again"):
        sha256 = digest.known(file.path)
    if not file.hub or file.package:
        return {f"{file.key}_SHA256": sha256}
    remote = hub.look(file.on_hub, say)
    if remote.sha256 != sha256 or not remote.commit:
        raise RigError(
            f"{file.path} has SHA-256 {sha256}, but {file.hub} at {file.revision or 'main'} "
            f"declares {remote.sha256 or 'none'}, of commit {remote.commit or 'unknown'}; "
            f"set {file.key}_HF_REVISION to where it came from, or move it away to fetch it anew"
        )
    return {f"{file.key}_HF_REVISION": remote.commit, f"{file.key}_SHA256": sha256}
