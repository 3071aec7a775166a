"""The text of a speed report."""

from pathlib import Path
from typing import Any

from tabulate import tabulate

from common import figures, pair
from common.speed import BASELINE


def render(summary: dict[str, Any], manifest: dict[str, Any], folder: Path) -> str:
    """REPORT.md as text; draws the figures into `folder`."""
    drafting = [arm for arm in summary["arms"] if arm["speed_up"]]
    parts = [
        f"# Speed: {summary['rig']}, {manifest['started'][:10]}",
        *_warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _headline(summary),
        "Speeds are the server's own timings, one request at a time, greedy. The interval is 95% "
        "over prompts; *spread* is between rounds. *Kept* is accepted over drafted tokens. "
        "docs/METHOD.md explains each.",
        *_figures(drafting, summary, folder),
        "## By prompt",
        _by_prompt(summary),
        *_sampled(summary),
        *_known_answer(summary),
        "## Can this be trusted",
        *_trust(summary),
        "## What was run",
        what_was_run(manifest),
        "## Do it again",
        reproduce(manifest),
        "## Not measured",
        "Long prompts, several requests at once, answer quality, energy. Other draft lengths than "
        "those above. What these numbers would be on another card.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def answer(summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    """The answer in one sentence."""
    where = hardware(manifest)
    arms = [arm for arm in summary["arms"] if arm["speed_up"]]
    if not arms:
        return f"On {where}, no arm with a drafter has been measured yet."
    best = max(arms, key=lambda arm: float(arm["speed_up"]["ratio"]))
    up = best["speed_up"]
    figure = f"{_ratio(up)} ({_interval(up)}) the speed of no drafter"
    if up["verdict"] == "pays":
        return f"On {where}, {best['arm']} pays: {figure}."
    if up["verdict"] == "loses":
        return (
            f"On {where}, no drafter setting pays; the least bad, {best['arm']}, runs at {figure}."
        )
    if up["verdict"] == "even":
        return f"On {where}, no drafter setting is sure to pay; the best, {best['arm']}: {figure}."
    return f"On {where}, too little was measured to say; {best['arm']} ran at {_ratio(up)}."


def hardware(manifest: dict[str, Any]) -> str:
    card = manifest["card"]
    return f"an {card['name']}" if card else f"a CPU ({manifest['host']['cpu']}, not run on a card)"


def _warnings(summary: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    found = []
    if summary["quick"]:
        found.append(
            "> **Quick run**: few prompts, short replies, one round. A look, not a result."
        )
    if not summary["complete"]:
        found.append("> **Unfinished**: this run was stopped; continue it with `RESUME=1`.")
    if manifest["settings"]["MODEL"] == pair.TARGET_NAME:
        found.append(
            "> **Known-answer pair**: made-up weights without any training. Its kept share is "
            "known in advance and checks the measuring; its speeds say nothing about Gemma."
        )
    return found


def _headline(summary: dict[str, Any]) -> str:
    rows = []
    for arm in summary["arms"]:
        up, memory = arm["speed_up"], arm["memory_mib"]
        rows.append([
            arm["arm"],
            _number(arm["tokens_per_second"]),
            _ratio(up) if up else "1 (baseline)",
            _interval(up),
            _percent(up["round_spread"]) if up else "",
            _kept(arm["kept"]),
            _number(arm["ttft_ms"]),
            up["verdict"] if up else "",
            _number(memory["card_peak"] if memory["card_peak"] is not None
                    else memory["process_peak"], 0),
        ])  # fmt: skip
    on_card = any(arm["memory_mib"]["card_peak"] is not None for arm in summary["arms"])
    memory_title = "card MiB" if on_card else "process MiB"
    return _table(
        [
            "arm",
            "tokens/s",
            "speed-up",
            "95%",
            "spread",
            "kept",
            "TTFT ms",
            "verdict",
            memory_title,
        ],
        rows,
    )


def _figures(drafting: list[dict[str, Any]], summary: dict[str, Any], folder: Path) -> list[str]:
    found = []
    if drafting:
        figures.speed_up(folder / "figures" / "speed_up.svg", drafting, summary["cells"])
        found.append("![Speed-up over no drafter, per arm](figures/speed_up.svg)")
    with_counts = [arm for arm in drafting if arm["kept"]]
    if with_counts:
        figures.kept(folder / "figures" / "kept.svg", with_counts)
        found.append("![Share of drafts kept, per position](figures/kept.svg)")
    return found


def _by_prompt(summary: dict[str, Any]) -> str:
    rows = [
        [
            cell["cell"],
            cell["arm"],
            _number(cell["tokens_per_second"]),
            f"{cell['speed_up']:.3f}" if cell["speed_up"] else "",
            _kept(cell["kept"]),
        ]
        for cell in summary["cells"]
    ]
    return _table(["prompt", "arm", "tokens/s", "speed-up", "kept"], rows)


def _sampled(summary: dict[str, Any]) -> list[str]:
    rows = [
        [
            arm["arm"],
            _number(arm["tokens_per_second"]),
            _ratio(arm["speed_up"]) if arm["speed_up"] else "1 (baseline)",
            _interval(arm["speed_up"]),
            _kept(arm["kept"]),
        ]
        for arm in summary["sampled"]
        if arm["tokens_per_second"] is not None
    ]
    if not rows:
        return []
    head = "## At temperature 0.8 (one round)"
    return [head, _table(["arm", "tokens/s", "speed-up", "95%", "kept"], rows)]


def _known_answer(summary: dict[str, Any]) -> list[str]:
    if summary["known_answer"] is None:
        return []
    measured = {arm["arm"]: arm["kept"] for arm in summary["arms"]}
    rows = []
    for line in summary["known_answer"]:
        expected, own = line["expected"], measured[line["arm"]]
        rows.append([
            line["arm"],
            f"{expected['accepted']} of {expected['drafted']}",
            f"{own['accepted']} of {own['drafted']}" if own else "absent",
            ", ".join(map(str, expected["accepted_per_pos"])),
            ", ".join(map(str, own["accepted_per_pos"])) if own else "absent",
            "yes" if line["equal"] else "NO",
        ])  # fmt: skip
    head = ["arm", "kept, expected", "kept, measured", "per position, expected",
            "per position, measured", "equal"]  # fmt: skip
    text = (
        "The pair's tokens follow a known chain, so what is kept can be worked out without a "
        "model. Every figure must be equal, not close."
    )
    return ["## Known answer", _table(head, rows), text]


def _trust(summary: dict[str, Any]) -> list[str]:
    flags, drift, times = summary["flags"], summary["drift"], summary["time"]
    lines = []
    if drift["change"] is None:
        lines.append("- Drift: not measured.")
    else:
        lines.append(
            f"- Drift: the first arm ({drift['arm']}), repeated at the end, moved by "
            f"{drift['change']:+.1%}. Speed-ups smaller than that mean little."
        )
    lines.append(
        f"- Samples: {flags['samples']}. Taken while the card was throttled: "
        f"{flags['throttled']}. Client and server clock more than 2% apart: "
        f"{flags['clocks_disagree']}. Replies that ended before the asked length: "
        f"{flags['ended_early']}. Failed attempts: {flags['failed_attempts']}."
    )
    for row in summary["equal_text"]:
        if row["of"] and row["arm"] == BASELINE:
            lines.append(
                f"- Equal text, control: {row['equal']} of {row['of']} replies without drafter are "
                "the same as in the first round."
            )
        elif row["of"]:
            lines.append(
                f"- Equal text, {row['arm']}: {row['equal']} of {row['of']} greedy replies are the "
                "same as without drafter."
            )
    lines.append(_time_line(times))
    return ["\n".join(lines)]


def _time_line(times: dict[str, Any]) -> str:
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


def what_was_run(manifest: dict[str, Any]) -> str:
    """Engine, files, card, host and settings, as a table and a list."""
    host, card, harness = manifest["host"], manifest["card"], manifest["harness"]
    commit = (harness["commit"] or "unknown")[:12] + (" with changes" if harness["dirty"] else "")
    rows = [
        ["engine", manifest["engine_title"]],
        *[[role, f"{file['name']}, {file['size']:,} bytes, SHA-256 `{file['sha256']}`"]
          for role, file in manifest["files"].items()],
        ["card", f"{card['name']}, driver {card['driver']}, CUDA {card['cuda']}, "
                 f"{card['memory_mib']} MiB, {card['power_limit_w']} W" if card else "none"],
        ["host", f"{host['cpu']}, {host['cores']} cores, {host['memory_gib']} GiB, "
                 f"Linux {host['kernel']}"],
        ["harness", f"commit {commit}"],
        ["started, ended", f"{manifest['started']}, {manifest['ended'] or 'not ended'}"],
    ]  # fmt: skip
    arms = "\n".join(
        f"- {name}: " + (", ".join(f"`{k}={v}`" for k, v in changes.items()) or "the rig as it is")
        for name, changes in manifest["plan"]["arms"].items()
    )
    return f"{_table(['', ''], rows)}\n\nArms differ from the rig in:\n\n{arms}"


def reproduce(manifest: dict[str, Any]) -> str:
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


def _table(head: list[str], rows: list[list[str]]) -> str:
    return tabulate(rows, head, tablefmt="github", disable_numparse=True)


def _number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _ratio(up: dict[str, Any]) -> str:
    return f"{up['ratio']:.3f}x"


def _interval(up: dict[str, Any] | None) -> str:
    if up is None or up["low"] is None:
        return "" if up is None else "no interval"
    return f"{up['low']:.3f} to {up['high']:.3f}"


def _kept(kept: dict[str, Any] | None) -> str:
    return "absent" if kept is None else f"{kept['share']:.3f}"
