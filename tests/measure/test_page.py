"""Tables and figures of reports: nothing in a cell breaks its row, and one place says 95%."""

import ast
import re
from pathlib import Path
from typing import Any

from common.measure import page, stats
from common.rig import ROOT

LOG = "main: model | file\n  <|turn> loaded\n"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_what_a_cell_holds_stays_in_it() -> None:
    head, _rule, row = page.table(["a|b", "c"], [[LOG, "d"]]).splitlines()
    assert cells(head) == ["a\\|b", "c"]
    assert cells(row) == ["main: model \\| file<br>  <\\|turn> loaded", "d"]


def test_the_table_of_failed_trials_holds_log_lines() -> None:
    failed = {"cell": "code", "arm": "n=1", "round": "greedy-1", "reason": LOG}
    summary: Any = {"infeasible": [], "failed": [failed, failed]}
    *_, table = page.faults(summary)
    assert [len(cells(line)) for line in table.splitlines()] == [4] * 4


def texts(path: Path) -> list[str]:
    """The strings of a file that are no docstrings."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]


def test_how_sure_an_interval_is_comes_from_one_place() -> None:
    assert f"{stats.CONFIDENCE:.0%}" == page.LEVEL
    # Scores have intervals of their own making, which accuracy's pairing says.
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "common").rglob("*.py"))
        if "accuracy" not in path.parts and any(page.LEVEL in text for text in texts(path))
    ]
    assert found == []
