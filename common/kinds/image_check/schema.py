"""What summary.json of a look into an image holds, and nothing else."""

from common.measure.journal import Layer, Part, Said
from common.measure.summary import Some, Strict


class Compile(Strict):
    seconds: float
    processor_seconds: float
    jobs: int
    compiled: int | None
    from_cache: int | None


class Summary(Strict):
    what: str
    rig: str
    complete: bool
    architectures: list[str]
    machine_code: list[str]
    bytes: Some
    compressed_bytes: Some
    build_seconds: float
    compile: Compile | None
    layers: list[Layer]
    libraries: list[Part]
    missing: list[str]
    says: list[str]
    user: str
    labels: dict[str, str]
    without_driver: Said
    problems: list[str]
