"""What is made of a look into an image."""

from pathlib import Path
from typing import Any, cast

from common.errors import RigError
from common.kinds.image_check.plan import problems
from common.kinds.image_check.schema import Compile, Summary
from common.measure import run
from common.measure.journal import ImageManifest, Packed
from common.measure.rows import significant


def summarise(folder: Path) -> Summary:
    """Every figure of the report, from the run directory alone."""
    manifest = cast(ImageManifest, run.read_manifest(folder))
    lines: list[Packed] = run.read_lines(folder, run.JOURNAL)
    if not lines:
        raise RigError(f"{folder}: nothing was looked into yet")
    found = lines[-1]
    return {
        "what": manifest["what"],
        "rig": manifest["rig"],
        "complete": manifest["ended"] is not None,
        "architectures": found["architectures"],
        "machine_code": found["machine_code"],
        "bytes": found["bytes"],
        "compressed_bytes": found["compressed_bytes"],
        "build_seconds": significant(manifest["build_seconds"]),
        "compile": _compile(manifest["engine"]),
        "layers": found["layers"],
        "libraries": found["libraries"],
        "missing": found["missing"],
        "says": found["says"],
        "user": found["user"],
        "labels": found["labels"],
        "without_driver": found["without_driver"],
        "problems": problems(found),
    }


def _compile(engine: dict[str, Any]) -> Compile | None:
    """What compiling took; None of an engine that does not say."""
    took = engine.get("compile")
    if not isinstance(took, dict):
        return None
    cache = took.get("cache") or {}
    return {
        "seconds": took["seconds"],
        "processor_seconds": took["processor_seconds"],
        "jobs": took["jobs"],
        "compiled": cache.get("compiled"),
        "from_cache": cache.get("from_cache"),
    }
