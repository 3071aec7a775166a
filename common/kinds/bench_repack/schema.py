"""What summary.json of a bench-repack run holds, and nothing else."""

from common.measure.summary import Some, Strict


class Command(Strict):
    command: str
    seconds: float
    cpu_seconds: float | None
    mb_per_s: float
    resident: int | None


class Summary(Strict):
    what: str
    rig: str
    complete: bool
    source_bytes: Some
    threads: Some
    rounds: Some
    commands: list[Command]
    ratio: float
    ratios: list[float]
    ratio_unsynced: float
    numpy_ratio: float
    resident: Some
    meets_targets: bool
