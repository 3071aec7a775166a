"""Log: a run directory read back, and the figures that every kind of measurement has."""

import shlex
from collections import Counter
from itertools import pairwise
from pathlib import Path

from common.errors import RigError
from common.known.chain import TARGET_NAME, Drafting, expect, make_chain
from common.measure import repetition, run, stats
from common.measure.journal import Memory, Start, Trial
from common.measure.rows import (
    Speed,
    decode_speed,
    given,
    kept,
    memory,
    significant,
    speeds,
    throttled,
)
from common.measure.summary import (
    Drift,
    Failed,
    Flags,
    Head,
    Infeasible,
    Kept,
    KnownAnswer,
    MemoryMib,
    Pause,
    Time,
)

PAUSE_S = 60.0
"""a longer wait between two trials is told; stopping a server takes a second or two"""


class Log:
    """What a run directory holds. `trials` are the good ones, `lines` all of them."""

    def __init__(self, folder: Path) -> None:
        self.manifest = run.read_manifest(folder)
        self.lines: list[Trial] = run.read_lines(folder, run.JOURNAL)
        self.trials = [line for line in self.lines if line["failed"] is None]
        seen = Counter((trial["round"], trial["arm"], trial["cell"]) for trial in self.trials)
        if twice := [" of ".join(key) for key, count in seen.items() if count > 1]:
            raise RigError(
                f"{folder / run.JOURNAL} holds {twice[0]} twice ({len(twice)} trials are there "
                "more than once)",
                fix="take the later lines out, or bring the whole folder again",
            )
        self.starts: list[Start] = run.read_lines(folder, run.STARTS)
        plan = self.manifest["plan"]
        self.arms = list(plan["arms"])
        self.cells = plan["cells"]
        self.kinds = {name: turn["kind"] for name, turn in plan["rounds"].items()}

    def head(self) -> Head:
        """How every summary begins."""
        return {
            "what": self.manifest["what"],
            "rig": self.manifest["rig"],
            "quick": self.manifest["plan"]["quick"],
            "complete": self.manifest["ended"] is not None,
            "repetition": self.repetition(self.main()),
            "launch": self._launch(),
            "pauses": self.pauses(),
        }

    def _launch(self) -> str | None:
        for start in self.starts:
            if start["arm"] == self.arms[-1]:
                words = [Path(word).name if "/" in word else word for word in start["command"]]
                return shlex.join(words)
        return None

    @property
    def headline(self) -> str:
        """The kind of rounds that the answer is made from: that of the first."""
        return next(iter(self.kinds.values()))

    def main(self) -> list[Trial]:
        """The good trials of the headline's rounds."""
        return self.of_kind(self.headline)

    def of_kind(self, kind: str) -> list[Trial]:
        """The good trials of greedy, sampled or drift rounds."""
        return [trial for trial in self.trials if self.kinds[trial["round"]] == kind]

    def memory(self, arm: str) -> MemoryMib:
        """Largest memory of an arm, at ready and in all its good trials."""
        own = [trial for trial in self.trials if trial["arm"] == arm]
        return memory(own, self.ready_memory(arm))

    def ready_memory(self, arm: str) -> list[Memory]:
        return [start["memory_ready_mib"] for start in self.starts if start["arm"] == arm]

    def drift(self, speed: Speed | None = None) -> Drift:
        """How far the first arm moved between its first and its last measurement, and how far its
        rounds lie apart meanwhile."""
        speed = speed or decode_speed
        arm, turn = self.arms[0], next(iter(self.kinds))
        own = [trial for trial in self.trials if trial["arm"] == arm]
        first = {t["cell"]: speed(t) for t in own if t["round"] == turn}
        again = {t["cell"]: speed(t) for t in own if self.kinds[t["round"]] == "drift"}
        change = significant(stats.drift(first, again))
        return {"arm": arm, "change": change, "range": self._range(arm, speed)}

    def _range(self, arm: str, speed: Speed) -> float | None:
        """The fastest over the slowest of an arm's rounds, minus 1, by what all of them asked; None
        for a single round, or where rounds ask different things."""
        found = speeds(self.main(), arm, speed)
        rounds = {turn for _, turn in found}
        asked = [cell for cell in self.cells if all((cell, turn) in found for turn in rounds)]
        if len(rounds) < 2 or not asked:
            return None
        means = [stats.geometric_mean([found[cell, turn] for cell in asked]) for turn in rounds]
        return significant(max(means) / min(means) - 1)

    def flags(self) -> Flags:
        """Counts of what a reader should know about the samples."""
        samples = [sample for trial in self.trials for sample in trial["samples"]]
        early = 0
        for trial in self.trials:
            requests = self.cells[trial["cell"]]["requests"]
            # a closed loop may end before all were sent
            for sample, asked in zip(trial["samples"], requests, strict=False):
                early += given(sample["predicted_n"]) < asked["max_tokens"]
        return {
            "samples": len(samples),
            "throttled": throttled(self.trials),
            "clocks_disagree": sum(sample["clocks_disagree"] for sample in samples),
            "counts_disagree": sum(
                sample.get("usage_n") not in (None, sample["predicted_n"]) for sample in samples
            ),
            "ended_early": early,
            "failed_attempts": len(self.lines) - len(self.trials),
        }

    def repetition(self, trials: list[Trial]) -> float | None:
        """The share of what the replies of some trials say again."""
        samples = [sample for trial in trials for sample in trial["samples"]]
        texts = [text for one in samples for text in (one["reasoning"], one["content"])]
        return significant(repetition.share(texts))

    def infeasible(self) -> list[Infeasible]:
        """Cells that could not be asked, with the reason."""
        return [
            {"cell": name, "reason": reason}
            for name, cell in self.cells.items()
            if (reason := cell["infeasible"])
        ]

    def failed(self) -> list[Failed]:
        """Trials that failed, with the reason."""
        return [
            {"round": line["round"], "arm": line["arm"], "cell": line["cell"], "reason": reason}
            for line in self.lines
            if (reason := line["failed"]) is not None
        ]

    def time(self) -> Time:
        """Where the time went, in seconds."""
        ready = [start["ready_s"] + (start["checked_s"] or 0) for start in self.starts]
        return {
            "server_start_s": significant(sum(ready)),
            "requests_s": significant(sum(line["end"] - line["start"] for line in self.lines)),
            "cool_down_s": significant(sum(start["cooled_s"] for start in self.starts)),
            "wall_s": significant(self.manifest["wall_s"]),
        }

    def pauses(self) -> list[Pause]:
        """Waits of over PAUSE_S from one trial's end to the next one's start, in order.

        As when a run was stopped and gone on with, or the host slept: what the machine did
        meanwhile nobody knows. Where a turn begins, the time of starting its server and cooling
        down is no pause. `starts`: how often the server of that arm was started in that round.
        """
        found: list[Pause] = []
        for last, line in pairwise(self.lines):
            own = [s for s in self.starts if (s["round"], s["arm"]) == (line["round"], line["arm"])]
            if not own:  # its server did not start, which takes a time that is not noted
                continue
            seconds = line["start"] - last["end"]
            if (last["round"], last["arm"]) != (line["round"], line["arm"]):
                seconds -= sum(s["ready_s"] + (s["checked_s"] or 0) + s["cooled_s"] for s in own)
            if seconds > PAUSE_S:
                found.append(
                    {
                        "round": line["round"],
                        "arm": line["arm"],
                        "after": last["cell"],
                        "before": line["cell"],
                        "seconds": significant(seconds),
                        "starts": len(own),
                    }
                )
        return found

    def known_answer(self, trials: list[Trial]) -> list[KnownAnswer] | None:
        """For the known-answer pair: expected beside measured counts. None for other models."""
        if self.manifest["settings"]["MODEL"] != TARGET_NAME:
            return None
        rows: list[KnownAnswer] = []
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

    def _expected(self, trials: list[Trial], length: int) -> Kept:
        chain = make_chain()
        total = Drafting(0, 0, 0, (0,) * length)
        for trial in trials:
            for asked in self.cells[trial["cell"]]["requests"][: len(trial["samples"])]:
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
