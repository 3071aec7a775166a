"""Write the full SHA-256 and the resolved revision of the rig's files, and the full commit of
llama.cpp, into its tpu.env."""

from tqdm import tqdm

from common.engines.llamacpp import commit
from common.files import pin
from common.rig import FILE, Rig
from scripts import _cli, _preparing


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    with _preparing.download_bar() as progress:
        tell(rig, pin.pin(rig, tqdm.write, progress))
    # Last, so that a repository out of reach leaves the files pinned.
    if found := commit.pin(rig):
        tell(rig, found)
        _cli.say(
            "the engine and the image of this rig are named by the commit, so they are built anew; "
            "run make compose in the project's folder"
        )


def tell(rig: Rig, changes: dict[str, str]) -> None:
    for key, value in changes.items():
        _cli.say(f"{rig.folder / FILE}: {key}={value}")


if __name__ == "__main__":
    _cli.main(body)
