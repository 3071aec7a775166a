"""Log: a run directory read back, and the figures that every kind of measurement has."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from common.known.chain import TARGET_NAME, Drafting, expect, make_chain
from common.measure import run, stats
from common.measure.rows import Speed, Trial, decode_speed, kept, memory, significant

PAUSE_S = 60.0
"""a longer wait between two trials is told; stopping a server takes a second or two"""


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

    def memory(self, arm: str) -> dict[str, Any]:
        """Largest memory of an arm, at ready and in all its good trials."""
        own = [trial for trial in self.trials if trial["arm"] == arm]
        return memory(own, self.ready_memory(arm))

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

    def pauses(self) -> list[dict[str, Any]]:
        """Waits of over PAUSE_S from one trial's end to the next one's start, in order.

        As when a run was stopped and gone on with, or the host slept: what the machine did
        meanwhile nobody knows. Where a turn begins, the time of starting its server and cooling
        down is no pause. `starts`: how often the server of that arm was started in that round.
        """
        found = []
        for last, line in pairwise(self.lines):
            own = [s for s in self.starts if (s["round"], s["arm"]) == (line["round"], line["arm"])]
            if not own:  # its server did not start, which takes a time that is not noted
                continue
            seconds = line["start"] - last["end"]
            if (last["round"], last["arm"]) != (line["round"], line["arm"]):
                seconds -= sum(s["ready_s"] + (s["checked_s"] or 0) + s["cooled_s"] for s in own)
            if seconds > PAUSE_S:
                where = {"round": line["round"], "arm": line["arm"]}
                between = {"after": last["cell"], "before": line["cell"]}
                told = {"seconds": significant(seconds), "starts": len(own)}
                found.append({**where, **between, **told})
        return found

    def known_answer(self, trials: list[Trial]) -> list[dict[str, Any]] | None:
        """For the known-answer pair: expected beside measured counts. None for other models."""
        if self.manifest["settings"]["MODEL"] != TARGET_NAME:
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
        chain = make_chain()
        total = Drafting(0, 0, 0, (0,) * length)
        for trial in trials:
            for asked in self.cells[trial["cell"]]["requests"]:
                # Runs of before bytes were noted asked in ASCII, where a character is a byte.
                size = asked.get("bytes", asked["characters"])
                total += expect(chain, size, asked["max_tokens"], length)
        return {
            "accepted": total.accepted,
            "drafted": total.drafted,
            "share": significant(total.accepted / total.drafted),
            "drafts": total.drafts,
            "accepted_per_pos": list(total.accepted_per_pos),
        }
