"""Commit: all 40 digits of the commit that a rig's tpu.env names, written there."""

from common.engines.llamacpp import build, source
from common.env_file import rewrite
from common.errors import RigError
from common.rig import FILE, Rig

KEY = "LLAMA_CPP_COMMIT"


def pin(rig: Rig) -> dict[str, str]:
    """Write all digits of the rig's commit into its tpu.env. Returns the settings that were
    written: none if all of it is there, or if the rig has no commit.

    Raises RigError if neither the rig's engine nor the repository tells them.
    """
    ours = [key for key in (KEY, "LLAMA_CPP_REPOSITORY") if key in rig.overridden]
    path = rig.folder / FILE
    if ours:
        raise RigError(
            f"{' and '.join(ours)} from the environment, and a pin belongs to what {path} says",
            fix="leave it out",
        )
    if not rig.llama_cpp_commit or len(rig.llama_cpp_commit) == 40:
        return {}
    try:
        commit = build.full_commit(rig) or source.full_commit(source.wanted(rig)[0])
    except RigError as error:
        raise RigError(f"{KEY} stays {rig.llama_cpp_commit}: {error}") from None
    rewrite(path, {KEY: commit})
    return {KEY: commit}
