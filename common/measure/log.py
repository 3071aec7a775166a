"""Log: a run directory read back, and the figures that every kind of measurement has."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.known import chain as pair
from common.measure import run, stats

BASELINE = "none"
Trial = dict[str, Any]
Speed = Callable[[Trial], float]


class Log:
    """What a run directory holds. `trials` are the good ones, `lines` all of them."""

    def __init__(self, folder: Path) -> None:
        self.manifest = run.read_manifest(folder)
        self.lines: list[Trial] = run.read_lines(folder, run.JOURNAL)
        self.trials = [line for line in self.lines if line["failed"] is None]
        self.starts = run.read_lines(folder, run.STARTS)
        plan = self.manifest["plan"]
        self.arms: list[str] = list(plan["arms"])
        self.cells: dict[str, dict[str, Any]] = plan["cells"]
        self.kinds = {name: turn["kind"] for name, turn in plan["rounds"].items()}

    def head(self) -> dict[str, Any]:
        """How every summary begins."""
        plan = self.manifest["plan"]
        return {
            "schema": 1,
            "what": self.manifest["what"],
            "rig": self.manifest["rig"],
            "quick": plan["quick"],
            "complete": self.manifest["ended"] is not None,
        }

    def of_kind(self, kind: str) -> list[Trial]:
        """The good trials of greedy, sampled or drift rounds."""
        return [trial for trial in self.trials if self.kinds[trial["round"]] == kind]

    def ready_memory(self, arm: str) -> list[dict[str, Any]]:
        return [start["memory_ready_mib"] for start in self.starts if start["arm"] == arm]

    def drift(self, speed: Speed | None = None) -> dict[str, Any]:
        """How far the first arm moved between its first and its last measurement."""
        speed = speed or decode_speed
        arm, turn = self.arms[0], next(iter(self.kinds))
        own = [trial for trial in self.trials if trial["arm"] == arm]
        first = {t["cell"]: speed(t) for t in own if t["round"] == turn}
        again = {t["cell"]: speed(t) for t in own if self.kinds[t["round"]] == "drift"}
        return {"arm": arm, "change": significant(stats.drift(first, again))}

    def flags(self) -> dict[str, int]:
        """Counts of what a reader should know about the samples."""
        samples = [sample for trial in self.trials for sample in trial["samples"]]
        early = 0
        for trial in self.trials:
            requests = self.cells[trial["cell"]]["requests"]
            for sample, asked in zip(trial["samples"], requests, strict=True):
                early += sample["predicted_n"] < asked["max_tokens"]
        return {
            "samples": len(samples),
            "throttled": sum(bool(trial["throttles"]) for trial in self.trials),
            "clocks_disagree": sum(sample["clocks_disagree"] for sample in samples),
            "ended_early": early,
            "failed_attempts": len(self.lines) - len(self.trials),
        }

    def infeasible(self) -> list[dict[str, str]]:
        """Cells that could not be asked, with the reason."""
        return [
            {"cell": name, "reason": cell["infeasible"]}
            for name, cell in self.cells.items()
            if cell["infeasible"]
        ]

    def failed(self) -> list[dict[str, str]]:
        """Trials that failed, with the reason."""
        return [
            {key: line[key] for key in ("round", "arm", "cell")} | {"reason": line["failed"]}
            for line in self.lines
            if line["failed"] is not None
        ]

    def time(self) -> dict[str, float | None]:
        """Where the time went, in seconds."""
        ready = [start["ready_s"] + (start["checked_s"] or 0) for start in self.starts]
        return {
            "server_start_s": significant(sum(ready)),
            "requests_s": significant(sum(line["end"] - line["start"] for line in self.lines)),
            "cool_down_s": significant(sum(start["cooled_s"] for start in self.starts)),
            "wall_s": significant(self.manifest["wall_s"]),
        }

    def known_answer(self, trials: list[Trial]) -> list[dict[str, Any]] | None:
        """For the known-answer pair: expected beside measured counts. None for other models."""
        if self.manifest["settings"]["MODEL"] != pair.TARGET_NAME:
            return None
        rows = []
        for arm, changes in self.manifest["plan"]["arms"].items():
            in_force = {**self.manifest["settings"], **changes}
            own = [trial for trial in trials if trial["arm"] == arm]
            if in_force["SPEC_TYPE"] == "draft-mtp" and own:
                expected, found = self._expected(own, int(in_force["SPEC_DRAFT_N_MAX"])), kept(own)
                equal = expected == found
                rows.append({"arm": arm, "expected": expected, "measured": found, "equal": equal})
        return rows

    def cells_wrong(self, trials: list[Trial]) -> list[str] | None:
        """Known-answer pair: cells in which a trial's kept is not the known value. None for other
        models."""
        wrong = set()
        for trial in trials:
            rows = self.known_answer([trial])
            if rows is None:
                return None
            wrong |= {trial["cell"] for row in rows if not row["equal"]}
        return sorted(wrong)

    def _expected(self, trials: list[Trial], length: int) -> dict[str, Any]:
        chain = pair.make_chain()
        total = pair.Drafting(0, 0, 0, (0,) * length)
        for trial in trials:
            for asked in self.cells[trial["cell"]]["requests"]:
                total += pair.expect(chain, asked["characters"], asked["max_tokens"], length)
        return {
            "accepted": total.accepted,
            "drafted": total.drafted,
            "share": significant(total.accepted / total.drafted),
            "drafts": total.drafts,
            "accepted_per_pos": list(total.accepted_per_pos),
        }


def decode_speed(trial: Trial) -> float:
    """The server's own decode speed of a trial's only request, tokens per second."""
    (sample,) = trial["samples"]
    return float(sample["predicted_per_second"])


def output_speed(trial: Trial) -> float:
    """All output tokens of a batch over the time from sending to the end of its last reply."""
    tokens = sum(sample["predicted_n"] for sample in trial["samples"])
    return float(tokens * 1000 / max(sample["wall_ms"] for sample in trial["samples"]))


def speeds(
    trials: Sequence[Trial], arm: str | None = None, speed: Speed = decode_speed
) -> dict[stats.Key, float]:
    """Cell and round -> tokens per second, of one arm or of trials that are one arm's."""
    return {
        (trial["cell"], trial["round"]): speed(trial)
        for trial in trials
        if arm is None or trial["arm"] == arm
    }


def mean_speed(found: Mapping[stats.Key, float]) -> float | None:
    return significant(stats.geometric_mean(list(found.values()))) if found else None


def speed_up(
    baseline: Mapping[stats.Key, float], arm: Mapping[stats.Key, float]
) -> dict[str, Any] | None:
    """A speed-up for a summary; None if nothing can be paired."""
    if not baseline.keys() & arm.keys():
        return None
    up = stats.speed_up(baseline, arm)
    return {
        "ratio": significant(up.ratio),
        "low": significant(up.low),
        "high": significant(up.high),
        "round_spread": significant(up.round_spread),
        "verdict": up.verdict,
    }


def kept(trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Accepted and drafted tokens, in all and per position; None if nothing was drafted."""
    samples = [sample for trial in trials for sample in trial["samples"]]
    drafted = sum(sample["draft_n"] or 0 for sample in samples)
    if not drafted:
        return None
    accepted = sum(sample["draft_n_accepted"] or 0 for sample in samples)
    counts = [trial["counters"] for trial in trials]
    per_pos = [0] * max(len(count["accepted_per_pos"]) for count in counts)
    for count in counts:
        for position, number in enumerate(count["accepted_per_pos"]):
            per_pos[position] += number
    return {
        "accepted": accepted,
        "drafted": drafted,
        "share": significant(accepted / drafted),
        "drafts": sum(count["drafts"] for count in counts),
        "accepted_per_pos": per_pos,
    }


def equal_replies(trials: Sequence[Trial], arms: Sequence[str]) -> dict[str, int]:
    """Cells and rounds that all of `arms` answered, and in how many their replies are equal."""
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for trial in trials:
        place = texts.setdefault((trial["cell"], trial["round"]), {})
        place[trial["arm"]] = trial["samples"][0]["content"]
    sets = [{place[arm] for arm in arms} for place in texts.values() if place.keys() >= set(arms)]
    return {"equal": sum(len(replies) == 1 for replies in sets), "of": len(sets)}


def memory(trials: Sequence[Trial], ready: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Largest memory in MiB, at ready and in the trials; None where it was not measured."""
    during = [trial["memory_mib"] for trial in trials if trial["memory_mib"]]
    return {
        "process_ready": largest([found["process"] for found in ready]),
        "process_peak": largest([found["process_peak"] for found in during]),
        "card_ready": largest([found["card"] for found in ready]),
        "card_peak": largest([found["card"] for found in during]),
    }


def crossing(points: Sequence[tuple[float, dict[str, Any]]]) -> dict[str, Any]:
    """Where a gain is gone along x (a depth, a number of requests), from (x, speed-up) points.

    `low` and `high` are where the ends of the 95% intervals cross 1; None if they do not.
    `why` says holds or never where the speed-up itself does not cross.
    """
    found: dict[str, Any] = {"at": None, "low": None, "high": None, "why": None}
    for name, key in (("at", "ratio"), ("low", "low"), ("high", "high")):
        curve = [(x, up[key]) for x, up in points if up[key] is not None]
        found[name] = significant(stats.crossing(curve))
    if found["at"] is None and points:
        found["why"] = "never" if points[0][1]["ratio"] <= 1 else "holds"
    return found


def pays_to(points: Sequence[tuple[float, dict[str, Any]]]) -> float | None:
    """The last x at which the whole 95% interval lies above 1; None if it does so nowhere."""
    return max((x for x, up in points if up["low"] is not None and up["low"] > 1), default=None)


def largest(values: Sequence[float | None]) -> float | None:
    return significant(max((value for value in values if value is not None), default=None))


def significant(value: float | None) -> float | None:
    """Six significant digits: enough to read, few enough to be the same on every machine."""
    return None if value is None else float(f"{value:.6g}")
