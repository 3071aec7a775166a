"""Summary: the figures that every kind of measurement shares."""

from collections.abc import Mapping
from typing import Any


def kept(trials: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Accepted and drafted tokens, in all and per position; None if nothing was drafted."""
    samples = [sample for trial in trials for sample in trial["samples"]]
    drafted = sum(sample["draft_n"] or 0 for sample in samples)
    if not drafted:
        return None
    accepted = sum(sample["draft_n_accepted"] or 0 for sample in samples)
    counts = [trial["counters"] for trial in trials]
    length = max(len(count["accepted_per_pos"]) for count in counts)
    per_pos = [sum(c["accepted_per_pos"][i] for c in counts if i < len(c["accepted_per_pos"]))
               for i in range(length)]  # fmt: skip
    return {
        "accepted": accepted,
        "drafted": drafted,
        "share": rounded(accepted / drafted),
        "drafts": sum(count["drafts"] for count in counts),
        "accepted_per_pos": per_pos,
    }


def time_spent(
    manifest: Mapping[str, Any], lines: list[dict[str, Any]], starts: list[dict[str, Any]]
) -> dict[str, float | None]:
    return {
        "server_start_s": rounded(sum(s["ready_s"] + (s["checked_s"] or 0) for s in starts)),
        "requests_s": rounded(sum(line["end"] - line["start"] for line in lines)),
        "cool_down_s": rounded(sum(start["cooled_s"] for start in starts)),
        "wall_s": rounded(manifest.get("wall_s")),
    }


def rounded(value: float | None) -> float | None:
    """Six significant digits: enough to read, few enough to be the same on every machine."""
    return None if value is None else float(f"{value:.6g}")
