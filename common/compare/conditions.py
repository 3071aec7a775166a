"""Conditions: what differs between two runs, or between a run and a published figure's conditions.

Only what is equal in everything but the hardware gives a ratio between cards. Each difference is a
short text; `refuse` forbids a ratio, `label` only has to be said beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common.known import chain
from common.rig import GROUPS, needs_drafter

Manifest = Mapping[str, Any]
DRAFTER_FILE = ("SPEC_DRAFT_MODEL", "SPEC_DRAFT_HF", "SPEC_DRAFT_HF_REVISION", "SPEC_DRAFT_SHA256")
# Built for the card on purpose, so it must differ between cards.
CARD_FLAG = "-DCMAKE_CUDA_ARCHITECTURES="
KNOWN_ANSWER = "known-answer pair: its speeds say nothing about Gemma"
DRIFT_SAID = 0.02


@dataclass
class Differences:
    refuse: list[str] = field(default_factory=list)
    label: list[str] = field(default_factory=list)


def hardware(manifest: Manifest) -> str:
    """The card, or the CPU where there is none: what a ratio between cards is about."""
    card, host = manifest.get("card"), manifest["host"]
    if card:
        limit = card.get("power_limit_w")
        return f"{card['name']}, {card['memory_mib']} MiB" + (f", {limit:g} W" if limit else "")
    return f"{host['cpu']}, {host['cores']} cores"


def engine(manifest: Manifest) -> str | None:
    """Which engine source a run used, in full; None if nobody knows."""
    info = manifest.get("engine") or {}
    source = info.get("source")
    if not source:
        own = info.get("server_sha256")
        return f"llama-server with SHA-256 {own[:12]}" if own else None
    kind, version = source["kind"], source["version"]
    if kind == "git":
        return f"commit {source.get('commit') or version}"
    return f"{kind} {version}, SHA-256 {(source.get('sha256') or 'unknown')[:12]}"


def between(a: Manifest, b: Manifest) -> Differences:
    """What differs between two runs of one kind, but for their arms and their hardware."""
    found = Differences()
    _file(found.refuse, "model", *((m.get("files") or {}).get("model") for m in (a, b)))
    _differ(found.refuse, "engine", engine(a), engine(b))
    if _backend(a) == _backend(b):
        _differ(found.refuse, "build flags", _flags(a), _flags(b))
    _differ(
        found.refuse, "prompts", _short(a.get("prompts_sha256")), _short(b.get("prompts_sha256"))
    )
    _requests(found, a["plan"]["cells"], b["plan"]["cells"])
    for name in ("inputs", "rounds"):
        _differ(found.refuse, name, a["plan"].get(name) or {}, b["plan"].get(name) or {})
    _differ(found.refuse, "length", *("quick" if m["plan"]["quick"] else "full" for m in (a, b)))
    ours, theirs = base_settings(a), base_settings(b)
    if "cpu" in (_backend(a), _backend(b)):
        ours.pop("N_GPU_LAYERS", None)
        theirs.pop("N_GPU_LAYERS", None)
    _settings(found.refuse, ours, theirs)
    for manifest, side in ((a, "first"), (b, "second")):
        if manifest["harness"]["dirty"] is not False:
            known = (
                "was measured with changed code"
                if manifest["harness"]["dirty"]
                else "does not say which code measured it"
            )
            found.refuse.append(f"the {side} {known}")
    _labels(found.label, a, b)
    return found


def arms(a: Manifest, b: Manifest, arm: str) -> list[str]:
    """What differs between two runs' arms of one name, given that `between` found them equal."""
    found: list[str] = []
    ours, theirs = arm_settings(a, arm), arm_settings(b, arm)
    _settings(found, ours, theirs)
    if needs_drafter(ours.get("SPEC_TYPE", "")):
        _file(found, "drafter", _drafter(a, arm), _drafter(b, arm))
    return found


def _labels(found: list[str], a: Manifest, b: Manifest) -> None:
    commits = [_short(manifest["harness"]["commit"]) for manifest in (a, b)]
    _differ(found, "harness commit", *commits)
    for key in ("driver", "cuda"):
        values = [(manifest.get("card") or {}).get(key) for manifest in (a, b)]
        if None not in values:
            _differ(found, key, *values)
    _differ(found, "kernel", a["host"]["kernel"], b["host"]["kernel"])
    if a.get("card") or b.get("card"):
        _differ(found, "host CPU", a["host"]["cpu"], b["host"]["cpu"])
    compilers = [((m.get("engine") or {}).get("version") or [""])[-1] for m in (a, b)]
    _differ(found, "compiler", *compilers)
    in_image = ["image" if manifest.get("image") else "host" for manifest in (a, b)]
    _differ(found, "run in", *in_image)
    if a["plan"]["quick"] and b["plan"]["quick"]:
        found.append("both are quick: a look, not a result")
    if chain.chain_of(a["settings"]["MODEL"]):
        found.append(KNOWN_ANSWER)


def _requests(found: Differences, a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Cells by what they asked, word for word (by digest) and token for token."""
    shared = a.keys() & b.keys()
    if a.keys() != b.keys():
        found.label.append(f"only {len(shared)} of {len(a)} and {len(b)} cells are in both")
    other = sorted(cell for cell in shared if _asked(a[cell]) != _asked(b[cell]))
    if other or not shared:
        found.refuse.append(f"requests: {', '.join(other[:3]) or 'no cell in common'}")


def _asked(cell: Mapping[str, Any]) -> list[Any]:
    return [(one["sha256"], one["max_tokens"]) for one in cell["requests"]]


def base_settings(manifest: Manifest) -> dict[str, str]:
    """The settings that bear on every arm; absent ones are left out.

    Files are compared by digest, the engine by its source and arms by what they change. A key that
    this version does not know must be equal too.
    """
    return {
        key: value
        for key, value in manifest["settings"].items()
        if value != "" and GROUPS.get(key, "serve") == "serve" and not key.startswith("SPEC_")
    }


def arm_settings(manifest: Manifest, arm: str) -> dict[str, str]:
    """What one arm served with, of drafting and of what arms change; files are left out."""
    changes = manifest["plan"]["arms"][arm]
    settings = {**manifest["settings"], **changes}
    kept = {
        key: value
        for key, value in settings.items()
        if value != "" and (key.startswith("SPEC_") or key in changes) and key not in DRAFTER_FILE
    }
    if not kept.get("SPEC_TYPE"):
        return {key: value for key, value in kept.items() if not key.startswith("SPEC_")}
    return kept


def _settings(found: list[str], a: Mapping[str, str], b: Mapping[str, str]) -> None:
    for key in sorted(a.keys() | b.keys()):
        _differ(found, key, a.get(key, "absent"), b.get(key, "absent"))


def _differ(found: list[str], name: str, a: Any, b: Any) -> None:
    """Note a difference. What is not known cannot be called equal."""
    if a is None or b is None:
        found.append(f"{name}: not known")
    elif a != b:
        said = isinstance(a, (str, int, float)) and isinstance(b, (str, int, float))
        found.append(f"{name}: {a} and {b}" if said else f"{name} differ")


def _short(digest: str | None) -> str | None:
    return None if digest is None else digest[:12]


def _file(
    found: list[str], role: str, a: Mapping[str, Any] | None, b: Mapping[str, Any] | None
) -> None:
    """Two files are the same if their digests are, whatever their names."""
    if a is None or b is None:
        found.append(f"{role} file: not known")
    elif a["sha256"] != b["sha256"]:
        ours, theirs = (f"{file['name']} ({file['sha256'][:12]})" for file in (a, b))
        found.append(f"{role} file: {ours} and {theirs}")


def _drafter(manifest: Manifest, arm: str) -> Mapping[str, Any] | None:
    files = manifest.get("files") or {}
    return files.get(f"drafter of {arm}") or files.get("drafter")


def _backend(manifest: Manifest) -> str | None:
    return (manifest.get("engine") or {}).get("backend")


def _flags(manifest: Manifest) -> list[str]:
    flags = (manifest.get("engine") or {}).get("cmake") or []
    return sorted(flag for flag in flags if not flag.startswith(CARD_FLAG))


def with_published(manifest: Manifest, arm: str, figure: Mapping[str, Any]) -> Differences:
    """What differs between a run's arm and the conditions a figure was published under.

    `label` holds what the study does not say, and so cannot be checked.
    """
    known, found = figure["conditions"], Differences()
    card = manifest.get("card")
    if not card or known["card"].lower() not in card["name"].lower():
        found.refuse.append(f"card: {hardware(manifest)}, not {known['card']}")
    else:
        _card(found, known, card)
    info = manifest.get("engine") or {}
    source = info.get("source") or {}
    commit = source.get("commit") or (
        source.get("version", "") if source.get("kind") == "git" else ""
    )
    if not commit.startswith(known["engine_commit"]):
        found.refuse.append(f"engine: {engine(manifest)}, not commit {known['engine_commit']}")
    if info.get("cuda_version") and not str(info["cuda_version"]).startswith(known["cuda"]):
        found.refuse.append(f"CUDA: {info['cuda_version']}, not {known['cuda']}")
    settings = {**manifest["settings"], **manifest["plan"]["arms"].get(arm, {})}
    for key, value in known["settings"].items():
        if settings.get(key, "") != value:
            found.refuse.append(f"{key}: {settings.get(key) or 'absent'}, not {value}")
    if "draft_length" in known:
        length = settings.get("SPEC_DRAFT_N_MAX", "") if settings.get("SPEC_TYPE") else ""
        if length != str(known["draft_length"]):
            found.refuse.append(f"draft length: {length or 'none'}, not {known['draft_length']}")
    if "prompts" in known:
        found.refuse.append(f"prompts: this project's own, not {known['prompts']}")
    if manifest["plan"]["quick"]:
        found.refuse.append("a quick run")
    if manifest["harness"]["dirty"] is not False:
        found.refuse.append("measured with changed or unknown code")
    if settings.get("SPEC_SYNTH_RATES"):
        found.refuse.append("acceptance was set")
    found.label.append("the model file's digest has not been published")
    return found


def _card(found: Differences, known: Mapping[str, Any], card: Mapping[str, Any]) -> None:
    limit = card.get("power_limit_w")
    if limit is None:
        found.label.append("power limit not known")
    elif abs(limit - known["power_limit_w"]) > known["power_limit_w"] / 10:
        found.refuse.append(f"power limit: {limit:g} W, not {known['power_limit_w']:g} W")
    if abs(card["memory_mib"] - known["memory_mib"]) > known["memory_mib"] / 20:
        found.refuse.append(f"memory: {card['memory_mib']} MiB, not {known['memory_mib']} MiB")
    if card.get("driver") != known["driver"]:
        found.label.append(f"driver: {card.get('driver')}, not {known['driver']}")
