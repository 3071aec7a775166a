"""The text of a report on an image."""

from pathlib import Path

from common.kinds.image_check.plan import DRIVER
from common.kinds.image_check.schema import Compile, Summary
from common.measure import page
from common.measure.journal import ImageManifest


def render(summary: Summary, manifest: ImageManifest, _folder: Path) -> str:
    """REPORT.md as text."""
    engine, host = manifest["engine"], manifest["host"]
    commit = (manifest["harness"]["commit"] or "unknown")[:12]
    dirty = " with changes" if manifest["harness"]["dirty"] else ""
    inside = [
        ["engine", manifest["engine_title"]],
        ["llama-server says", "; ".join(summary["says"]) or "nothing"],
        ["CUDA, its compiler", f"{engine.get('cuda_version')}, nvcc {engine.get('nvcc')}"],
        ["built for", ", ".join(summary["architectures"])],
        ["machine code in llama-server", ", ".join(summary["machine_code"])],
        ["not in the image", ", ".join(summary["missing"])],
        ["user", summary["user"]],
        ["serve without a driver", f"ends with {summary['without_driver']['code']}"],
    ]
    size = [
        ["on the disk", page.number(summary["bytes"] / 1e6, 0)],
        ["compressed with gzip", page.number(summary["compressed_bytes"] / 1e6, 0)],
    ]
    ran = [
        [
            "host",
            f"{host['cpu']}, {host['cores']} cores, {host['memory_gib']} GiB, "
            f"Linux {host['kernel']}",
        ],
        ["load before", f"{manifest['load']:.2f} processes ready to run, over the last minute"],
        ["harness", f"commit {commit}{dirty}"],
        ["started, ended", f"{manifest['started']}, {manifest['ended'] or 'not ended'}"],
    ]
    pieces = [
        f"# Image of {summary['rig']}, {manifest['started'][:10]}",
        f"**{answer(summary, manifest)}**",
        "## Inside",
        page.table(["", ""], inside),
        "What it says without a driver:",
        f"```\n{summary['without_driver']['text']}\n```",
        "## Size",
        page.table(["image", "MB"], size),
        page.table(
            ["library of CUDA", "MB", "compressed MB"],
            [
                [part["name"], *_megabytes(part["bytes"], part["compressed_bytes"])]
                for part in summary["libraries"]
            ],
        ),
        page.table(
            ["layer", "MB"],
            [
                [_made_by(layer["made_by"]), *_megabytes(layer["bytes"])]
                for layer in summary["layers"]
            ],
        ),
        "## Time",
        _time(summary),
        "## Labels",
        page.table(["", ""], [[key, value] for key, value in sorted(summary["labels"].items())]),
        "## What was run",
        page.table(["", ""], ran),
        "## Not done",
        f"No card was here: the driver's {DRIVER} was a stand-in, no kernel has run, and nothing "
        "is said about speed or answers.",
        "## Do it again",
        f"```\ngit checkout {manifest['harness']['commit'] or 'COMMIT'}\n"
        f"{_given(summary, manifest)}make image-check RIG={summary['rig']}\n```\n\n"
        "This page again from the files beside it: `make report RUN=` and this folder.",
    ]
    return "\n\n".join(pieces) + "\n"


def _given(summary: Summary, manifest: ImageManifest) -> str:
    """What was given beside the rig: another source, another base."""
    found = []
    if manifest["engine"]["source"]["kind"] == "release":
        found.append("LLAMA_CPP_COMMIT= ")
    prefix = "org.opencontainers.image.base."
    if not summary["labels"].get(f"{prefix}digest"):
        found.append(f"BASE_IMAGE={summary['labels'].get(f'{prefix}name')} ")
    return "".join(found)


def _made_by(step: str) -> str:
    return f"`{step}`" if step else "the base image"


def _megabytes(*sizes: int) -> list[str]:
    return [page.number(size / 1e6, 1) for size in sizes]


def _time(summary: Summary) -> str:
    whole = (
        f"Building the image took {summary['build_seconds']:,.0f} s: Docker builds only what it "
        "does not have of an earlier time."
    )
    took = summary["compile"]
    if took is None:
        return whole
    return (
        f"{whole} Compiling its engine took {took['seconds']:,.0f} s with {took['jobs']} compilers "
        f"at once, {took['processor_seconds']:,.0f} s of processor time{_cached(took)}."
    )


def _cached(took: Compile) -> str:
    if took["compiled"] is None:
        return ""
    return f" ({took['compiled']} files compiled, {took['from_cache']} taken from ccache)"


def answer(summary: Summary, _manifest: object) -> str:
    """The answer in one sentence."""
    size = f"{summary['bytes'] / 1e9:.2f} GB, {summary['compressed_bytes'] / 1e9:.2f} GB compressed"
    if summary["problems"]:
        return f"The image ({size}) is NOT as it should be: {'; '.join(summary['problems'])}."
    return (
        f"Compiled for {', '.join(summary['architectures'])} and packed ({size}): all that "
        f"llama-server needs is inside but the driver's {DRIVER}. Not run on a card."
    )
