"""Time the exact repack against llama-quantize and plain NumPy on the same bf16 weights."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from common import places, report
from common.engines.llamacpp import jobs
from common.errors import RigError
from common.host import alone, facts
from common.kinds.bench_repack import plan
from common.measure import run
from scripts import _cli, _preparing

NEED = 6_000_000_000
"""bytes: the weights in three formats, and two outputs at a time"""


def body(arguments: Sequence[str] | None = None) -> int:
    parser = _cli.parser(__doc__)
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    parser.add_argument("--threads", type=int, default=jobs.usable_cores())
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(arguments)
    if args.threads < 1 or args.rounds < 1:
        parser.error("--threads and --rounds must be 1 or more")
    # llama-quantize comes only with an engine that is compiled here.
    rig = _cli.load_rig(args.rig).variant({"ENGINE": "source"})
    built = _preparing.build_engine(rig)
    if not built.quantize.is_file():
        raise RigError(f"{built.quantize} is missing; build the engine with make engine")
    work = places.cache() / "bench-repack"
    work.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(work).free
    if free < NEED:
        raise RigError(
            f"{NEED / 1e9:.0f} GB are needed in {work}, {free / 1e9:.1f} GB are free; make room, "
            "or set GEMMA_RIGS_CACHE to another folder"
        )
    try:
        with tqdm(desc="inputs", unit="value", unit_scale=True, disable=None) as bar:
            plan.make_inputs(work, args.threads, bar.update)
        manifest = {
            "plan": {"quick": False, "rounds": args.rounds, "threads": args.threads},
            "harness": facts.harness(),
            "engine": built.info,
            "engine_title": built.title,
            "load": round(os.getloadavg()[0], 2),
            "host": facts.host(),
        }
        with (
            alone.measuring(f"bench-repack of {rig.name}"),
            run.create(rig, "bench-repack", manifest, args.out) as current,
        ):
            figures = plan.measure(work, built.quantize, args.threads, args.rounds)
            for line in plan.to_lines(figures):
                current.append(run.JOURNAL, line)
            current.finish()
    finally:
        shutil.rmtree(work)
    path = report.write(current.folder)
    _cli.say(report.answer(current.folder))
    _cli.say(f"report: {path}")
    return 0 if figures.meets_targets else 1


if __name__ == "__main__":
    _cli.main(body)
