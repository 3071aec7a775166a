"""The text of a tune report."""

from pathlib import Path

from common.kinds.tune import apply as tune_apply
from common.kinds.tune.choosing import WORTH
from common.kinds.tune.rows import rounds
from common.kinds.tune.schema import Stage, Summary
from common.measure import energy, figures, page
from common.measure.arms import SAMPLED
from common.measure.journal import Manifest
from common.measure.rows import given
from common.measure.stats import Verdict
from common.measure.summary import SpeedUp

WORTH_IN_WORDS = f"{WORTH - 1:.0%}"
DRAWN = {
    "greedy": "greedy",
    "sampled": f"at temperature {SAMPLED['temperature']}, each round with a seed of its own",
}
LEVERS = {
    "draft": "Draft length and type",
    "types": "Draft types joined",
    "p-min": "Least likelihood of a drafted token (SPEC_DRAFT_P_MIN)",
    "batch": "Tokens per pass (UBATCH_SIZE)",
    "kv-layout": "KV layout (KV_UNIFIED)",
    "kv-type": "KV types (CACHE_TYPE_K, CACHE_TYPE_V)",
}
WORKLOADS = {
    "chat": "short requests, one at a time",
    "documents": "requests one at a time, each behind a document of its own of a few thousand "
    "tokens, which is read anew",
    "many": "short requests, {slots} at once",
}


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figures into `folder`."""
    arms = {row["arm"]: row["changes"] for stage in summary["stages"] for row in stage["rows"]}
    shown: Manifest = {**manifest, "plan": {**manifest["plan"], "arms": arms}}
    pieces = [
        f"# Best setting for {summary['workload']}: {summary['rig']}, {manifest['started'][:10]}",
        *page.warnings(summary, manifest),
        *_overridden(manifest),
        f"**{answer(summary, manifest)}**",
        *_changes(summary),
        "## Confirmed",
        _confirmed(summary),
        *_rounds(summary),
        *_confirm_figure(summary, folder),
        "## Everything that was tried",
        _workload(summary),
        *_figure(summary, folder),
        *[part for stage in summary["stages"] for part in _stage(stage, _asked(summary))],
        *energy.told(summary["energy"]),
        "## What was saved",
        _effort(summary),
        *page.known_answer(summary),
        *page.cells_wrong(summary),
        *_failed(summary),
        "## Can this be trusted",
        "\n".join(
            [
                "- The interval that decides is over rounds of the confirmation; each has its own "
                "prompts and its own start of every server, and none is looked at before the last "
                f"is done. A change worth less than {WORTH_IN_WORDS} is recommended in at most one "
                "run of forty.",
                *page.trust(summary),
                page.time_line(summary["time"]),
            ]
        ),
        "## What was run",
        page.what_was_run(shown, summary["launch"]),
        "## Do it again",
        page.reproduce(manifest),
        "## Not measured",
        _not_measured(summary),
    ]
    return "\n\n".join(part for part in pieces if part) + "\n"


def answer(summary: Summary, manifest: Manifest) -> str:
    """The answer in one sentence."""
    found = summary["recommendation"]
    where = f"On {page.hardware(manifest)}, for {summary['workload']}"
    if not found["changes"]:
        reason = found["reason"]
        verdict = "change nothing" if summary["complete"] else "nothing can be said yet"
        return f"{where}, {verdict}: {reason[0].lower()}{reason[1:]}{_no_drafter_ahead(summary)}"
    up = given(found["speed_up"])
    settings = " ".join(f"{key}={value}" for key, value in found["changes"].items())
    return (
        f"{where}, set {settings} ({summary['winner']}, the best of {_tried(summary)} tried): "
        f"{page.ratio(up)} ({page.interval(up)}) the speed of the current setting "
        f"({summary['current']}), on prompts not used to choose it.{_no_drafter_ahead(summary)}"
    )


def _no_drafter_ahead(summary: Summary) -> str:
    """A sentence where no drafter, which every confirmation asks, did surely better than what is
    set, and the best found did not surely beat it; else nothing."""
    rows = summary["confirm"]["rows"] if summary["confirm"] else []
    over_none = [row["over_none"] for row in rows if row["arm"] == summary["winner"]]
    ahead = [row["over_current"] for row in rows if row["over_none"] is None]
    best, up = next(iter(over_none), None), next(iter(ahead), None)
    if best is None or up is None:  # one of them is no drafter itself, or failed
        return ""
    if (up["low"] or 0) < WORTH or (best["low"] or 0) > 1:
        return ""
    return (
        f" But no drafter, which was not chosen, ran at {page.ratio(up)} ({page.interval(up)}) the "
        f"speed of {summary['current']} in the same rounds: see what `make tune SPEC_TYPE=` says."
    )


def _tried(summary: Summary) -> int:
    """How many settings were tried, the current one among them."""
    return len({row["arm"] for stage in summary["stages"] for row in stage["rows"]})


def _overridden(manifest: Manifest) -> list[str]:
    ours = tune_apply.overridden(manifest["overridden"])
    if not ours:
        return []
    return [
        f"> **Not as tpu.env says**: {', '.join(ours)} came from the environment, so *current* is "
        "that setting, and nothing can be written into tpu.env."
    ]


def _changes(summary: Summary) -> list[str]:
    changes = summary["recommendation"]["changes"]
    if not changes:
        return []
    lines = "\n".join(f"{key}={value}" for key, value in changes.items())
    text = (
        f"In tpu.env:\n\n```\n{lines}\n```\n\n`make tune APPLY=1 RUN=` and this folder writes it."
    )
    if "CACHE_TYPE_K" in changes:
        text += (
            " Another KV type changes what the model computes, so the text may change: run "
            "`make accuracy` before you rely on it."
        )
    return [text]


def _workload(summary: Summary) -> str:
    what = WORKLOADS[summary["workload"]].format(slots=summary["slots"])
    drawn = DRAWN[summary["headline"]]
    return (
        f"The workload is {what}. Speed is all output tokens over the time from sending to the end "
        f"of the last reply, reading the prompt included; {drawn}, replies of exact length. One "
        "lever after the other, each on top of the best so far, which runs again beside its "
        f"options. A setting is dropped as soon as its {page.LEVEL} interval over prompts rules it "
        "out: against the fastest, or against the best so far, where it cannot be worth "
        f"{WORTH_IN_WORDS} more. The best so far is dropped when something is worth "
        f"{WORTH_IN_WORDS} more by its interval. Of what is left the fastest wins; while the best "
        "so far is in, only if a setting's interval lies above it and its mean is "
        f"{WORTH_IN_WORDS} more. This interval does not hold what a server's start adds, so no "
        "verdict is given here: what it gets wrong can cost the best setting, and is caught by "
        "the confirmation."
    )


def _asked(summary: Summary) -> str:
    """What one cell is called."""
    return "batches" if summary["workload"] == "many" else "prompts"


def _stage(stage: Stage, asked: str) -> list[str]:
    title = f"### {LEVERS[stage['lever']]}"
    if stage["skipped"]:
        return [title, f"Not tried: {stage['skipped']}."]
    rows = []
    for row in stage["rows"]:
        up, dropped = row["speed_up"], row["dropped"]
        fate = "kept to the end"
        if row["arm"] == stage["best"]:
            fate = "**best**"
        elif dropped:
            what = "failed" if dropped["failed"] else "dropped"
            fate = f"{what} after {dropped['after']} {asked}: {_first_line(dropped['why'])}"
        rows.append(
            [
                row["arm"],
                str(row["prompts"]),
                page.number(row["tokens_per_second"]),
                page.ratio(up) if up else ("1" if row["arm"] == stage["over"] else ""),
                page.interval(up),
                page.kept(row["kept"]),
                page.memory(row["memory_mib"]),
                fate,
            ]
        )
    head = [
        "setting",
        asked,
        "tokens/s",
        f"over {stage['over']}",
        page.LEVEL,
        "kept",
        page.memory_title(stage["rows"]),
        "what became of it",
    ]
    return [title, page.table(head, rows)]


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _confirmed(summary: Summary) -> str:
    found = summary["confirm"]
    if found is None:
        if summary["winner"] is None:
            return "Nothing is chosen yet."
        if summary["complete"]:
            return "There was nothing to confirm: the best is the current setting, no drafter."
        return f"The best so far, {summary['winner']}, is not confirmed yet."
    rows = []
    for row in found["rows"]:
        name = row["arm"]
        roles = []
        if name == summary["current"]:
            roles.append("current")
        if name == summary["winner"]:
            roles.append("best found")
        current, none = row["over_current"], row["over_none"]
        rows.append(
            [
                name + (f" ({', '.join(roles)})" if roles else ""),
                page.number(row["tokens_per_second"]),
                page.ratio(current) if current else ("1" if name == summary["current"] else ""),
                page.interval(current),
                page.ratio(none) if none else "1",
                page.interval(none),
                page.kept(row["kept"]),
                page.memory(row["memory_mib"]),
            ]
        )
    head = [
        "setting",
        "tokens/s",
        "over current",
        page.LEVEL,
        "over no drafter",
        page.LEVEL,
        "kept",
        page.memory_title(found["rows"]),
    ]
    text = (
        f"{found['prompts']} {_asked(summary)} that no setting was chosen by, in {found['rounds']} "
        "rounds with prompts and server starts of their own. A change is recommended only if the "
        f"interval over the current setting begins at {WORTH} or above, so that it is surely worth "
        f"{WORTH_IN_WORDS}, and three rounds of four lie above 1."
    )
    if summary["winner"] != summary["current"]:
        text += (
            f" {summary['winner']} is the best of {_tried(summary)} settings tried. It was picked "
            "on other prompts and other starts than these, so its interval needs no correction "
            "for having been picked."
        )
    if found["rounds"] < found["of"]:
        text += f" Not finished: {found['rounds']} of {found['of']} rounds."
    if found["failed"]:
        text += f" {summary['winner']} failed: {_first_line(found['failed'])}"
    return f"{page.table(head, rows)}\n\n{text}"


def _rounds(summary: Summary) -> list[str]:
    """The ratio of every round of the confirmation."""
    found = summary["confirm"]
    rows = []
    for row in found["rows"] if found else []:
        ratios = [ratio for ratio in row["by_round"] if ratio is not None]
        if row["over_current"]:
            above = f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)}"
            rows.append([row["arm"], above, rounds(row["by_round"])])
    if not rows:
        return []
    head = ["setting", "rounds above 1", f"each round over {summary['current']}"]
    return [page.table(head, rows)]


def _confirm_figure(summary: Summary, folder: Path) -> list[str]:
    """Coloured is what is recommended, not what *pays* where rounds hold several prompts."""
    found = summary["confirm"]
    own = found["rows"] if found else []
    recommended = summary["winner"] if summary["recommendation"]["changes"] else None
    rows: list[tuple[str, SpeedUp]] = []
    for row in own:
        if up := row["over_current"]:
            verdict: Verdict = "pays" if row["arm"] == recommended else "even"
            rows.append((row["arm"], {**up, "verdict": verdict}))
    if not rows:
        return []
    dots = [(row["arm"], ratio) for row in own for ratio in row["by_round"]]
    path = folder / "figures" / "confirmed.svg"
    figures.speed_up(path, rows, dots, f"over what is set: mean and {page.LEVEL}; dots: rounds")
    return ["![Speed over the current setting, confirmed](figures/confirmed.svg)"]


def _figure(summary: Summary, folder: Path) -> list[str]:
    rows = [
        (f"{stage['lever']}: {row['arm']}", up)
        for stage in summary["stages"]
        for row in stage["rows"]
        if (up := row["speed_up"])
    ]
    if not rows:
        return []
    path = folder / "figures" / "tried.svg"
    figures.speed_up(path, rows, [], f"over the best so far: mean and {page.LEVEL}")
    return ["![Speed of everything that was tried, over the best so far](figures/tried.svg)"]


def _effort(summary: Summary) -> str:
    found = summary["effort"]
    grid = f"{found['grid_settings']} settings in {found['grid_trials']} trials"
    if found["grid_seconds"] is not None:
        grid += f", about {_minutes(found['grid_seconds'])} at the same pace"
    return (
        f"{found['trials']} trials in {_minutes(found['seconds'])}, of which "
        f"{found['choosing_trials']} in {_minutes(found['choosing_seconds'])} to choose. The full "
        "grid, every option with every other, asked every choosing prompt and confirmed alike: "
        f"{grid}. The same levers without dropping anything: {found['undropped_trials']} trials to "
        "choose."
    )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} minutes"


def _failed(summary: Summary) -> list[str]:
    if not summary["failed"]:
        return []
    reasons = {(line["arm"], line["reason"]): None for line in summary["failed"]}
    rows = [[arm, reason.replace("\n", "<br>")] for arm, reason in reasons]
    return ["## Failed", page.table(["setting", "why"], rows)]


def _not_measured(summary: Summary) -> str:
    text = (
        "Combinations of levers other than those above: each lever was tried on top of the best "
        "so far, so two that only help together can be missed. Other workloads than this one, "
        "answer quality. What the best would be on another card."
    ) + energy.not_measured(summary["energy"])
    if summary["workload"] == "many":
        slots = summary["slots"]
        text += (
            f" Other numbers of requests at once than {slots}; PARALLEL is no part of the change."
        )
    if any(stage["lever"] == "kv-type" and not stage["skipped"] for stage in summary["stages"]):
        text += " Whether another KV type changes the answers: that is what `make accuracy` is for."
    else:
        text += (
            " KV types: they change what the model computes, so they are tried only if TUNE_LEVERS "
            "names them."
        )
    return text
