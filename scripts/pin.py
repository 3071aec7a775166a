"""Write the full SHA-256 and the resolved revision of the rig's files into its tpu.env."""

from tqdm import tqdm

from common.engines.llamacpp import build
from common.files import pin
from common.rig import FILE
from scripts import _cli, _preparing


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    with _preparing.download_bar() as progress:
        changes = pin.pin(rig, tqdm.write, progress)
    for key, value in changes.items():
        _cli.say(f"{rig.folder / FILE}: {key}={value}")
    if commit := build.full_commit(rig):
        _cli.say(
            f"LLAMA_CPP_COMMIT={rig.llama_cpp_commit} is the beginning of the commit that the "
            f"engine was built from; to pin all of it write LLAMA_CPP_COMMIT={commit} into "
            f"{rig.folder / FILE} (the engine is then built anew)"
        )


if __name__ == "__main__":
    _cli.main(body)
