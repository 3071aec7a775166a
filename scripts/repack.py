"""Make the rig's drafter of its published checkpoint: exact Q4_0, Q8_0 and bf16, checked."""

from tabulate import tabulate
from tqdm import tqdm

from common import places
from common.engines.llamacpp import converter
from common.errors import RigError, disk_says
from common.files import snapshot
from common.rigs import repacking
from common.rigs.repacking import Made
from scripts import _cli, _preparing


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    if rig.spec_draft_model is None:
        raise RigError(f"{rig.name}: SPEC_DRAFT_MODEL is empty, so there is no drafter to make")
    with _preparing.download_bar() as progress:
        checkpoint = snapshot.fetch(rig, tqdm.write, progress)
    tool = converter.prepare(rig, _cli.say)
    work = places.cache() / "repack" / rig.name
    with disk_says(work, "make room, or set GEMMA_RIGS_CACHE or MODELS_DIR to another folder"):
        made = repacking.make(
            checkpoint.folder, rig.spec_draft_model, rig.spec_draft_sha256, tool, work, _cli.say
        )
        recorded = repacking.record(made, checkpoint, tool)
    show(made)
    _cli.say(f"recorded in {recorded}")


def show(made: list[Made]) -> None:
    """The check table, then digests."""
    rows = []
    for file in made:
        for row in file.by_type:
            identical = "" if row.identical is None else f"{row.identical:.3%}"
            error = "" if row.relative_error is None else f"{row.relative_error:.5f}"
            rows.append([file.path.name, row.type, f"{row.values:,}", identical, error])
    heads = ["file", "tensors", "values", "bit-identical", "relative error"]
    _cli.say(tabulate(rows, heads, disable_numparse=True))
    for file in made:
        _cli.say(f"{file.path}: {file.size:,} bytes, SHA-256 {file.sha256}, {file.note}")


if __name__ == "__main__":
    _cli.main(body)
