"""Writing what tune recommends into the rig's tpu.env, with the run it came from."""

import json
from pathlib import Path

from common import env_file
from common.errors import RigError
from common.kinds.tune.schema import Recommendation
from common.measure import run
from common.measure.page import LEVEL
from common.measure.rows import given
from common.rig import FILE, GROUPS, Rig

TUNES_OWN = ("PARALLEL", "SPEC_SYNTH_RATES")
# What a served model's speed hangs on: a recommendation belongs to these settings.
SETTINGS = (
    *("BACKEND", "MODEL", "SPEC_DRAFT_MODEL"),
    *(key for key, group in GROUPS.items() if group == "serve" and key not in TUNES_OWN),
)
NOTE = "# set by make tune: "


def overridden(keys: list[str] | tuple[str, ...]) -> list[str]:
    """Those settings that came from the environment: they are not what tpu.env says."""
    return [key for key in keys if key in SETTINGS]


def check(rig: Rig, quick: bool) -> None:
    """Raise RigError if what this rig measures now could not be written into its tpu.env."""
    if ours := overridden(rig.overridden):
        raise RigError(
            f"{', '.join(ours)} comes from the environment, so what is compared is not what "
            f"{rig.folder / FILE} says; leave it out, or leave APPLY=1 out"
        )
    if quick:
        raise RigError("a quick run is a look, not a result: leave QUICK=1 or APPLY=1 out")


def apply(rig: Rig, folder: Path) -> dict[str, str]:
    """Write a finished run's recommendation; returns the settings written, none if there are none.

    Raises RigError if the run is not one of this rig as it stands.
    """
    manifest = run.read_manifest(folder)
    if (manifest["what"], manifest["rig"]) != ("tune", rig.name) or not manifest["ended"]:
        raise RigError(f"{folder} is not a finished tune run of {rig.name}")
    check(rig, bool(manifest["plan"]["quick"]))
    if ours := overridden(manifest["overridden"]):
        raise RigError(
            f"{', '.join(ours)} came from the environment when {folder} was measured, so it is not "
            f"about what {rig.folder / FILE} says; measure anew"
        )
    now = rig.settings()
    for key in SETTINGS:
        was = manifest["settings"].get(key, "")
        if was != now[key]:
            raise RigError(
                f"{folder} was measured with {key}={was}, {rig.folder / FILE} now says "
                f"{key}={now[key]}; measure anew"
            )
    changes = recommended(folder)
    if changes:
        summary = json.loads((folder / run.SUMMARY).read_text(encoding="utf-8"))
        env_file.rewrite(
            rig.folder / FILE, changes, note(summary["recommendation"], folder.resolve().name)
        )
    return changes


def recommended(folder: Path) -> dict[str, str]:
    """The settings that a run's summary says to change. Raises RigError if it has none."""
    try:
        summary = json.loads((folder / run.SUMMARY).read_text(encoding="utf-8"))
        return dict(summary["recommendation"]["changes"])
    except (OSError, ValueError, KeyError) as error:
        raise RigError(f"{folder} has no recommendation: {error}; is it a tune run?") from None


def note(found: Recommendation, name: str) -> str:
    """The comment above a setting that was written."""
    up = given(found["speed_up"])
    return (
        f"{NOTE}for {found['workload']}, {up['ratio']:.3f}x ({LEVEL} {up['low']:.3f} to "
        f"{up['high']:.3f}) of the setting before; run {name}"
    )
