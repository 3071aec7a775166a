"""The text of a bench-client report."""

from pathlib import Path

from tabulate import tabulate

from common.kinds.bench_client.plan import OURS
from common.kinds.bench_client.schema import Summary
from common.kinds.bench_client.summary import MOST_SHARE
from common.measure.journal import ClientManifest
from common.measure.rows import given


def render(summary: Summary, manifest: ClientManifest, _folder: Path) -> str:
    """REPORT.md as text."""
    plan, host, harness = manifest["schedule"], manifest["host"], manifest["harness"]
    commit = (harness["commit"] or "unknown")[:12] + (" with changes" if harness["dirty"] else "")
    versions = "".join(f", {name} {version}" for name, version in manifest["versions"].items())
    parts = [
        f"# Client cost, {manifest['started'][:10]}",
        "" if summary["complete"] else "> **Unfinished**: this run was stopped.",
        f"**{answer(summary)}**",
        "## CPU per streamed chunk, in microseconds",
        _costs(summary, manifest["clients"]),
        "Median of the rounds, in brackets the lowest and highest. Ours is the whole of a batch "
        "of requests in a process that has made one before: connecting, reading, parsing. A "
        "peer's is what all its processes used between the first and the last text sent, without "
        "its start and without its report. *Share* is our median over that of the lightest peer "
        f"at so many streams; the goal is at most {MOST_SHARE:g} at each. It is the only figure "
        "that is judged: microseconds depend on the host.",
        "## Distance from the truth",
        _errors(summary),
        "The truth is what the mock server did: from the moment the request reached its kernel to "
        "just before it wrote the first and the last text. *Typical* is the median over requests "
        "and rounds, *worst* the worst single request or round: on a busy host the client may "
        "get no processor for a while.",
        "## What was run",
        f"Mock server: {plan['chunks']} text chunks a stream at {plan['rate']:g} a second, the "
        f"first after {plan['ttft_s'] * 1000:g} ms. {manifest['rounds']} rounds, all clients in "
        f"turn. {OURS} at commit {commit}{versions}. {host['cpu']}, {host['cores']} cores, Linux "
        f"{host['kernel']}.",
        *(f"Left out: {reason}." for reason in manifest["absent"].values()),
        *(f"Some runs failed, the last because: {why}" for why in summary["failures"].values()),
        "## Do it again",
        f"```\ngit checkout {harness['commit'] or 'COMMIT'}\nmake bench-client\n```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def answer(summary: Summary, _manifest: object = None) -> str:
    """The answer in one sentence."""
    costs = [given(row["us_per_chunk"][OURS])["median"] for row in summary["rows"]]
    cost = f"{min(costs):.1f} to {max(costs):.1f} microseconds of CPU per chunk"
    beside = [row for row in summary["rows"] if row["share"] is not None]
    if not beside:
        return f"The client costs {cost}; no verdict, because no peer ran beside it."
    shares = ", ".join(
        f"{row['share']:.3f} of {row['lightest']}'s ({row['streams']} at once)" for row in beside
    )
    words = {
        "met": f"at most {MOST_SHARE:g} of the lightest peer's everywhere, as it should be",
        "missed": f"more than {MOST_SHARE:g} of the lightest peer's, which is too much",
        None: "no verdict, because a peer did not run at every number of streams",
    }
    return f"The client costs {cost}: {shares}; {words[summary['verdict']]}."


def _costs(summary: Summary, clients: list[str]) -> str:
    rows = []
    for row in summary["rows"]:
        cells = []
        for name in clients:
            cost = row["us_per_chunk"][name]
            cells.append(
                f"{cost['median']:.1f} ({cost['low']:.1f} to {cost['high']:.1f})"
                if cost
                else "failed"
            )
        share = "" if row["share"] is None else f"{row['share']:.3f} of {row['lightest']}'s"
        rows.append([row["streams"], *cells, share])
    head = ["streams", *clients, "share"]
    return tabulate(rows, head, tablefmt="github", disable_numparse=True)


def _errors(summary: Summary) -> str:
    rows = [
        [
            row["streams"],
            f"{row['ttft_error_ms']:.3f}",
            f"{row['worst_ttft_error_ms']:.3f}",
            f"{row['rate_error']:.4%}",
            f"{row['worst_rate_error']:.4%}",
        ]
        for row in summary["rows"]
    ]
    head = ["streams", "TTFT, typical ms", "worst ms", "total rate, typical", "worst"]
    return tabulate(rows, head, tablefmt="github", disable_numparse=True)
