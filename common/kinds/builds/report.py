"""The text of a builds report."""

from pathlib import Path

from common.engines import Engine
from common.kinds.builds import summary as builds_summary
from common.kinds.builds.schema import Name, Summary
from common.measure import energy, figures, page
from common.measure.journal import Manifest
from common.measure.rows import BASELINE

NAMES = {"rig": "the rig's own", "other": "the other"}
VERDICTS = {"pays": "faster", "loses": "slower", "even": "even", "unknown": "unclear"}


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figure into `folder`."""
    pieces = [
        f"# Builds: {summary['rig']}, {manifest['started'][:10]}",
        *page.warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _headline(summary),
        "Speeds are the server's own timings, one request at a time. *Over own build* is the other "
        "build's speed over the rig's own build's with the same drafter, in all and in each round; "
        "*drafter's speed-up* is over no drafter in the same build. Intervals are "
        f"{page.LEVEL} over prompts and server starts. *Kept* is accepted over drafted tokens.",
        *_figure(summary, folder),
        *energy.told(summary["energy"]),
        "## By prompt",
        _by_prompt(summary),
        *page.known_answer(summary),
        "## Can this be trusted",
        "\n".join([*page.trust(summary), *_equal(summary), page.time_line(summary["time"])]),
        "## What was run",
        _builds(summary, manifest),
        "They are engines of two releases, made in two ways: the difference is that of both."
        if _two_releases(manifest)
        else "Both are built from the same source; flags that both have are left out.",
        page.what_was_run(manifest, summary["launch"]),
        "## Do it again",
        page.reproduce(manifest),
        "## Not measured",
        "Long prompts and several requests at once, where a build may differ more: give the other "
        "build's settings to `make longctx` or `make sweep`, such as "
        f"`make longctx {_settings(manifest)}`. Other draft lengths, answer quality. What these "
        "numbers would be on another card." + energy.not_measured(summary["energy"]),
    ]
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def answer(summary: Summary, manifest: Manifest) -> str:
    """The answer in one or two sentences: which build is faster, and whether the drafter pays."""
    where = page.hardware(manifest)
    over = [(arm["drafter"], up) for arm in summary["arms"] if (up := arm["over_rig"])]
    if not over:
        return f"On {where}, the two builds have not both been measured yet."
    told = ", ".join(
        f"{VERDICTS[up['verdict']]} {_with(drafter)} ({page.ratio(up)}, {page.interval(up)})"
        for drafter, up in over
    )
    other = title(summary, manifest, "other")
    text = f"On {where}, over the rig's own build the other ({other}) is {told}."
    drafting = [(arm, up) for arm in summary["arms"] if (up := arm["speed_up"])]
    if not drafting:
        return text
    verdicts = ", ".join(
        f"in {NAMES[arm['build']]} build {arm['drafter']} runs at {page.ratio(up)} "
        f"({up['verdict']})"
        for arm, up in drafting
    )
    return f"{text} Over no drafter, {verdicts}."


def title(summary: Summary, manifest: Manifest, build: Name) -> str:
    """What one build has that the other has not, in words."""
    (found,) = (row for row in summary["builds"] if row["build"] == build)
    if _two_releases(manifest):
        return ", ".join(
            [Engine(Path(), builds_summary.engines(manifest)[build]).title, *found["flags"]]
        )
    cuda = [f"CUDA {found['cuda_version']}"] if found["cuda_version"] else []
    return ", ".join([*cuda, *found["flags"]]) or "no flags of its own"


def _two_releases(manifest: Manifest) -> bool:
    """Whether one of the two engines is the embedded one."""
    found = [Engine(Path(), info).embedded for info in builds_summary.engines(manifest).values()]
    return found[0] != found[1]


def _with(drafter: str) -> str:
    return "without drafter" if drafter == BASELINE else f"with {drafter}"


def _headline(summary: Summary) -> str:
    rows = []
    for arm in summary["arms"]:
        up, over = arm["speed_up"], arm["over_rig"]
        rows.append(
            [
                NAMES[arm["build"]],
                arm["drafter"],
                page.number(arm["tokens_per_second"]),
                page.ratio(over) if over else "1 (baseline)" if arm["build"] == "rig" else "",
                page.interval(over),
                page.each_round(over),
                VERDICTS[over["verdict"]] if over else "",
                f"{page.ratio(up)} ({page.interval(up)})" if up else "",
                up["verdict"] if up else "",
                page.kept(arm["kept"]),
                page.number(arm["ttft_ms"]),
                page.memory(arm["memory_mib"]),
            ]
        )
    head = [
        "build",
        "drafter",
        "tokens/s",
        "over own build",
        page.LEVEL,
        "each round",
        "build is",
        f"drafter's speed-up ({page.LEVEL})",
        "drafter is",
        "kept",
        "TTFT ms",
        page.memory_title(summary["arms"]),
    ]
    return page.table(head, rows)


def _figure(summary: Summary, folder: Path) -> list[str]:
    over = [(_with(arm["drafter"]), up) for arm in summary["arms"] if (up := arm["over_rig"])]
    if not over:
        return []
    dots = [(_with(cell["drafter"]), cell["over_rig"]) for cell in summary["cells"]]
    label = f"speed over the rig's own build (mean and {page.LEVEL}; dots: prompts)"
    figures.speed_up(folder / "figures" / "over_rig.svg", over, dots, label)
    return ["![Speed-up of the other build over the rig's own](figures/over_rig.svg)"]


def _by_prompt(summary: Summary) -> str:
    rows = [
        [
            cell["cell"],
            cell["drafter"],
            page.number(cell["rig"]),
            page.number(cell["other"]),
            f"{cell['over_rig']:.3f}" if cell["over_rig"] else "",
        ]
        for cell in summary["cells"]
    ]
    head = ["prompt", "drafter", "tokens/s, own build", "tokens/s, other", "over own build"]
    return page.table(head, rows)


def _equal(summary: Summary) -> list[str]:
    return [
        f"- Equal text, {_with(arm['drafter'])}: {equal['equal']} of {equal['of']} prompts have "
        "the same greedy reply in both builds."
        for arm in summary["arms"]
        if (equal := arm["equal_rig"]) and equal["of"]
    ]


def _builds(summary: Summary, manifest: Manifest) -> str:
    rows = [
        [
            NAMES[row["build"]],
            title(summary, manifest, row["build"]),
            row["compiler"] or "unknown",
            f"`{row['server_sha256']}`",
            f"`{row['image']}`" if row["image"] else "none",
        ]
        for row in summary["builds"]
    ]
    return page.table(["build", "made with", "compiler", "SHA-256 of llama-server", "image"], rows)


def _settings(manifest: Manifest) -> str:
    """The other build's settings, as they are given on a command line."""
    arms = manifest["plan"]["arms"]
    (changes, *_) = (arms[name] for name in manifest["engines"])
    return " ".join(f"{key}={value}" for key, value in changes.items() if key != "SPEC_TYPE")
