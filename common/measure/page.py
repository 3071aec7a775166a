"""Pieces that every report has: tables, numbers, the host, how to do it again."""

from collections import Counter
from collections.abc import Sequence

from tabulate import tabulate

from common.known import chain
from common.measure import repetition, stats
from common.measure.journal import Manifest
from common.measure.log import PAUSE_S
from common.measure.summary import (
    Cell,
    Failed,
    Flags,
    Gaps,
    Head,
    Infeasible,
    Interval,
    Kept,
    KnownAnswer,
    MemoryMib,
    Pause,
    Percentiles,
    SpeedUp,
    Strict,
    Time,
)
from common.measure.summary import Drift as Moved

LEVEL = f"{stats.CONFIDENCE:.0%}"
"""how sure an interval is, as texts say it"""


# What pieces need of a summary, whatever else it has.
class Drifted(Strict):
    drift: Moved


class Trusted(Drifted):
    flags: Flags
    repetition: float | None
    pauses: list[Pause]


class Known(Strict):
    known_answer: list[KnownAnswer] | None


class Wrong(Strict):
    cells_wrong: list[str] | None


class Faulty(Strict):
    infeasible: list[Infeasible]
    failed: list[Failed]


class Held(Strict):
    memory_mib: MemoryMib


def hardware(manifest: Manifest) -> str:
    card = manifest["card"]
    return f"an {card['name']}" if card else f"a CPU ({manifest['host']['cpu']}, not run on a card)"


def asked(manifest: Manifest) -> str:
    """How many cells in how many rounds of how long replies."""
    plan = manifest["plan"]
    cells = [cell for cell in plan["cells"].values() if not cell["infeasible"]]
    kinds = Counter(turn["kind"] for turn in plan["rounds"].values())
    rounds = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    lengths = sorted({one["max_tokens"] for cell in cells for one in cell["requests"]})
    tokens = " to ".join(str(length) for length in dict.fromkeys(lengths[:1] + lengths[-1:]))
    return f"{len(cells)} cells; rounds: {rounds}; at most {tokens} tokens a reply"


def what_was_run(manifest: Manifest, launch: str | None) -> str:
    """Engine, files, card, host and settings, as a table and a list."""
    host, card, harness = manifest["host"], manifest["card"], manifest["harness"]
    commit = (harness["commit"] or "unknown")[:12] + (" with changes" if harness["dirty"] else "")
    rows = [
        ["engine", manifest["engine_title"]],
        *[
            [role, f"{file['name']}, {file['size']:,} bytes, SHA-256 `{file['sha256']}`"]
            for role, file in manifest["files"].items()
        ],
        [
            "card",
            f"{card['name']}, driver {card['driver']}, CUDA {card['cuda']}, "
            f"{card['memory_mib']} MiB, {card['power_limit_w']} W"
            if card
            else "none",
        ],
        [
            "host",
            f"{host['cpu']}, {host['cores']} cores, {host['memory_gib']} GiB, "
            f"Linux {host['kernel']}",
        ],
        ["harness", f"commit {commit}"],
        ["asked", asked(manifest)],
        [
            "context, slots",
            f"{manifest['settings']['CTX_SIZE']} tokens, "
            f"{manifest['settings']['PARALLEL'] or 1} at once",
        ],
        *([["launched", f"`{launch}`"]] if launch else []),
        ["started, ended", f"{manifest['started']}, {manifest['ended'] or 'not ended'}"],
    ]
    arms = "\n".join(
        f"- {name}: " + (", ".join(f"`{k}={v}`" for k, v in changes.items()) or "the rig as it is")
        for name, changes in manifest["plan"]["arms"].items()
    )
    return f"{table(['', ''], rows)}\n\nArms differ from the rig in:\n\n{arms}"


def reproduce(manifest: Manifest) -> str:
    settings = " ".join(
        f"{key}={manifest['settings'][key]}"
        for key in manifest["overridden"]
        if key not in ("PORT", "HOST")
    )
    quick = " QUICK=1" if manifest["plan"]["quick"] else ""
    target = f"make -C {manifest['rig']} {manifest['what']}{quick}"
    commit = manifest["harness"]["commit"] or "COMMIT"
    return (
        f"```\ngit checkout {commit}\n{target}{' ' + settings if settings else ''}\n```\n\n"
        "This page again from the files beside it: `make report RUN=` and this folder."
    )


def time_line(times: Time) -> str:
    text = (
        f"- Time: {times['server_start_s']:.0f} s starting servers, {times['requests_s']:.0f} s in "
        f"requests, {times['cool_down_s']:.0f} s cooling down"
    )
    if times["wall_s"] is None:
        return text + "."
    other = times["wall_s"] - times["server_start_s"] - times["requests_s"] - times["cool_down_s"]
    return (
        text + f", {other:.1f} s on everything else ({other / times['wall_s']:.1%} of the whole)."
    )


def pauses(found: list[Pause]) -> str:
    """Waits between trials that were longer than they should be, with length and place."""
    if not found:
        return f"- Pauses: none of over {PAUSE_S:.0f} s between two requests."
    told = [
        f"{_duration(one['seconds'])} in {one['round']} of {one['arm']}, between {one['after']} "
        f"and {one['before']}"
        + (f" (server started {one['starts']} times)" if one["starts"] > 1 else "")
        for one in found
    ]
    return (
        f"- Pauses of over {PAUSE_S:.0f} s between two requests: {'; '.join(told)}. What the host "
        "did meanwhile is not known."
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def table(head: list[str], rows: list[list[str]]) -> str:
    cells = [[_cell(text) for text in row] for row in rows]
    return tabulate(cells, [_cell(text) for text in head], tablefmt="github", disable_numparse=True)


def _cell(text: str) -> str:
    """Text that stays in its cell: a bar or the end of a line would end it."""
    return "<br>".join(text.replace("|", "\\|").splitlines())


def number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def ratio(up: Interval) -> str:
    return f"{up['ratio']:.3f}x"


def interval(up: Interval | None) -> str:
    if up is None or up["low"] is None:
        return "" if up is None else "no interval"
    return f"{up['low']:.3f} to {up['high']:.3f}"


def percentiles(found: Percentiles | None, per: float = 1, digits: int = 1) -> str:
    """Half, nine in ten, and 99 in 100, divided by `per`."""
    if found is None:
        return ""
    return " / ".join(f"{found[name] / per:.{digits}f}" for name in ("p50", "p90", "p99"))


GAPS = ["gap ms, p50 / p99", "largest gap ms"]
GAPS_TEXT = (
    "A *gap* is the time from one piece of text to the next (STREAM_GAPS=1); a step that keeps "
    "drafted tokens brings several pieces together."
)


def gaps(found: Gaps | None) -> list[str]:
    """What stands below GAPS."""
    if found is None:
        return ["", ""]
    return [f"{found['p50']:.2f} / {found['p99']:.2f}", f"{found['largest']:.1f}"]


def each_round(up: SpeedUp | None) -> str:
    """The ratio of every round, in the order they were measured."""
    return " ".join(f"{ratio:.3f}" for ratio in up["rounds"].values()) if up else ""


def kept(kept: Kept | None) -> str:
    return "absent" if kept is None else f"{kept['share']:.3f}"


def warnings(summary: Head, manifest: Manifest) -> list[str]:
    """What a reader must know before the answer."""
    found = []
    if summary["quick"]:
        found.append(
            "> **Quick run**: few prompts, short replies, one round. A look, not a result."
        )
    if not summary["complete"]:
        found.append("> **Unfinished**: this run was stopped; continue it with `RESUME=1`.")
    if manifest["settings"].get("SPEC_SYNTH_RATES") and manifest["what"] != "cost":
        found.append(
            "> **Acceptance was set**: SPEC_SYNTH_RATES accepts drafted tokens whatever they say, "
            "so kept and text are not the model's."
        )
    if chain.chain_of(manifest["settings"]["MODEL"]) and manifest["what"] != "cost":
        found.append(
            "> **Known-answer pair**: made-up weights without any training. Its kept share is "
            "known in advance and checks the measuring; its speeds say nothing about Gemma."
        )
    elif (summary["repetition"] or 0) > repetition.MUCH and manifest["what"] != "cost":
        found.append(
            f"> **Not ordinary text**: {summary['repetition']:.1%} of what the replies say they "
            f"had said before (text by people stays below {repetition.MUCH:.0%}). Drafts are easy "
            "to guess in such text, so these speed-ups are not those of a model at work."
        )
    return found


def known_answer(summary: Known) -> list[str]:
    """Expected beside measured counts; nothing for a model whose answer is not known."""
    if summary["known_answer"] is None:
        return []
    rows = []
    for line in summary["known_answer"]:
        expected, own = line["expected"], line["measured"]
        rows.append(
            [
                line["arm"],
                f"{expected['accepted']} of {expected['drafted']}",
                f"{own['accepted']} of {own['drafted']}" if own else "absent",
                ", ".join(map(str, expected["accepted_per_pos"])),
                ", ".join(map(str, own["accepted_per_pos"])) if own else "absent",
                "yes" if line["equal"] else "NO",
            ]
        )
    head = [
        "arm",
        "kept, expected",
        "kept, measured",
        "per position, expected",
        "per position, measured",
        "equal",
    ]
    text = (
        "The pair's tokens follow a known chain, so what is kept can be worked out without a "
        "model. Every figure must be equal, not close."
    )
    return ["## Known answer", table(head, rows), text]


def cells_wrong(summary: Wrong) -> list[str]:
    """Whether every single trial kept what the known-answer pair must keep."""
    if summary["cells_wrong"] is None:
        return []
    if not summary["cells_wrong"]:
        return ["Checked trial by trial as well: in every one, kept is exactly the known value."]
    return [f"Cells whose kept is NOT the known value: {', '.join(summary['cells_wrong'])}."]


def drift(summary: Drifted) -> str:
    """How far the first arm moved when it was measured again at the end."""
    found = summary["drift"]
    if found["change"] is None:
        return "- Drift: not measured."
    between = (
        f", and between its rounds by {found['range']:.1%}" if found["range"] is not None else ""
    )
    return (
        f"- Drift: the first arm ({found['arm']}), repeated at the end, moved by "
        f"{found['change']:+.1%}{between}. A ratio is of two arms in one round, and each pair of "
        "rounds has the order reversed, so what slows all arms alike cancels; what does not shows "
        "in how far the ratios of the rounds lie apart."
    )


def by_prompt(cells: list[Cell], arm_title: str = "arm") -> str:
    """A row per prompt and arm."""
    rows = [
        [
            cell["cell"],
            cell["arm"],
            number(cell["tokens_per_second"]),
            f"{cell['speed_up']:.3f}" if cell["speed_up"] else "",
            kept(cell["kept"]),
        ]
        for cell in cells
    ]
    return table(["prompt", arm_title, "tokens/s", "speed-up", "kept"], rows)


def count(value: int | None) -> str:
    return "not known" if value is None else str(value)


def trust(summary: Trusted) -> list[str]:
    """Drift, repetition, flagged samples and pauses, a line each."""
    flags = summary["flags"]
    lines = [drift(summary)]
    if summary["repetition"] is not None:
        lines.append(
            f"- Repetition: {summary['repetition']:.1%} of what replies say they had said."
        )
    lines.append(
        f"- Samples: {flags['samples']}. Taken while the card was throttled: "
        f"{count(flags['throttled'])}. Client and server clock more than 2% apart: "
        f"{flags['clocks_disagree']}. Token counts of usage and timings that differ: "
        f"{flags['counts_disagree']}. Replies that ended before the asked length: "
        f"{flags['ended_early']}. Failed attempts: {flags['failed_attempts']}."
    )
    lines.append(pauses(summary["pauses"]))
    return lines


def faults(summary: Faulty) -> list[str]:
    """What could not be asked, and what failed; nothing if all went well."""
    found = []
    if summary["infeasible"]:
        rows = [[line["cell"], line["reason"]] for line in summary["infeasible"]]
        found += ["## Infeasible", table(["cell", "why"], rows)]
    if summary["failed"]:
        rows = [
            [line["cell"], line["arm"], line["round"], line["reason"]] for line in summary["failed"]
        ]
        found += [
            "## Failed",
            "These trials are in no average.",
            table(["cell", "arm", "round", "why"], rows),
        ]
    return found


def memory(found: MemoryMib) -> str:
    """Peak memory: of the card if there is one, else of the process."""
    peak = found["card_peak"] if found["card_peak"] is not None else found["process_peak"]
    return number(peak, 0)


def memory_title(rows: Sequence[Held]) -> str:
    on_card = any(row["memory_mib"]["card_peak"] is not None for row in rows)
    return "card MiB" if on_card else "process MiB"
