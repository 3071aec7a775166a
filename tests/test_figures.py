"""README.md and docs/METHOD.md: every figure says where it comes from, and is found there.

What to do when this fails: put a link to the committed run, or the name of the file in backquotes,
into the paragraph or list item of the figure. A figure is found in a run if its REPORT.md prints it
so, in a file if that holds it so (a percentage also as a share: 0.95 or 95%). What is in no file,
such as how long a command took, names the command and has a row in TIMED; what is set and not
measured has a row in SET.
"""

import re

import pytest

from common import report
from common.rig import ROOT
from tests.test_report import RUNS

DOCUMENTS = ("README.md", "docs/METHOD.md")
TIMED = {
    "an engine of 34 MB": "make demo",
    "half a minute the first time, 20 seconds after": "make demo",
    "AMD EPYC, 2.6 GHz": "make demo",
    "an older machine may take two minutes": "make demo",
    "about five minutes, two more the first time": "make test",
    "takes 750 MB (117 MB of it": "docker image ls",
    "in about 8 minutes": "make image",
    "healthy after 1.5 s": "make test-docker",
    "at most 0.5 MiB off": "llama-fit-params",
    "6 MiB above for E2B and 20 MiB above": "llama-fit-params",
}
"""what was measured by hand: its words, and the command, which stands in the same paragraph"""
SET = {
    "Python 3.10": ("pyproject.toml", ">=3.10"),
    "RTX 3050 OEM, 8 GB": ("local-llamacpp-3050oem-2b-q4_0/README.md", "8192 MiB"),
    "GTX 1650 Ti Max-Q, 4 GB": ("local-llamacpp-1650ti-2b-q4_0/README.md", "4096 MiB"),
    "32,768 tokens on 4 GiB": ("local-llamacpp-1650ti-2b-q4_0/README.md", "4096 MiB"),
    "95% interval": ("common/measure/stats.py", "CONFIDENCE = 0.95"),
    "interval is 95%": ("common/measure/stats.py", "CONFIDENCE = 0.95"),
    "temperature 0.8": ("common/measure/arms.py", '"temperature": 0.8'),
    "more than 2%": ("common/serving/reply.py", "DISAGREES = 0.02"),
    "for at most five minutes": ("common/host/card.py", "COOL_LIMIT_S = 300.0"),
    "Under 0.1 nats": ("common/kinds/identity/summary.py", "NEAR_TIE = 0.1"),
    "first token within 2 ms": ("tests/serving/test_stream.py", "late < 2 and"),
    "0.01 MiB": ("tests/engines/llamacpp/test_memory.py", "two figures to 0.01"),
    "1% faster than the best so far": ("common/kinds/tune/choosing.py", "WORTH = 1.01"),
    "is 1% more": ("common/kinds/tune/choosing.py", "WORTH = 1.01"),
    "worth 1%": ("common/kinds/tune/choosing.py", "WORTH = 1.01"),
    "42.00 is 42": ("common/kinds/accuracy/tests/gsm8k.py", "42.00 is 42"),
    "18.00 is not 18": ("tests/kinds/accuracy/test_lm_eval.py", '"#### 18.00", "18.00", "18.00"'),
    "p 0.031; five give 0.063": (
        "tests/kinds/accuracy/test_pairing.py",
        "have p = 0.0625; six have p = 0.03125",
    ),
    "read every ten seconds": ("common/host/energy.py", "WATCH_S = 10.0"),
    "2.5 runs in 100": ("common/measure/stats.py", "CONFIDENCE = 0.95"),
    "300 MiB, a guess": ("common/engines/llamacpp/memory.py", "RUNTIME_MIB = 300.0"),
    "200 MiB more": ("common/rigs/fitting.py", "SPARE_MIB = 200.0"),
}
"""what is chosen or given: its words, and the file that says so with what stands in it"""

NUMBER = r"\d[\d,]*(?:\.\d+)?"
UNIT = r"(?:x|%|ms|s|seconds?|minutes?|hours?|microseconds|[KMG]i?B|W|J|tokens/s)(?![\w/])"
WORDS = r"\b(?:half an?|two|three|four|five|ten) (?:seconds?|minutes?|hours?)"
FIGURE = re.compile(
    rf"(?<![\w.,-])(?:{NUMBER} to {NUMBER} ?{UNIT}|{NUMBER} ?{UNIT}|\d+\.\d+(?![\w.]*\d))|{WORDS}"
)
BLOCK = re.compile(r"\n\n|\n(?=- )|\n(?=\|)")
PLACE = re.compile(r"\]\(([\w./-]+)\)|`([\w./-]+)`")


def unsourced(text: str) -> list[str]:
    """The figures of a document that have no source, with the words before them."""
    found = []
    for block in BLOCK.split(text):
        texts = [text for one, other in PLACE.findall(block) for text in in_source(one or other)]
        for figure in FIGURE.finditer(block):
            if not listed(block, figure) and not any(holds(own, figure[0]) for own in texts):
                found.append(block[max(0, figure.start() - 40) : figure.end()])
    return found


def in_source(name: str) -> list[str]:
    """The text of a committed run's report, or of a file of code; nothing for other names."""
    path = ROOT / name
    if path.name == report.REPORT:
        return [path.read_text()] if path.parent in RUNS else []
    code = path.suffix in (".py", ".yaml", ".json") and path.is_file()
    return [path.read_text()] if code else []


def holds(text: str, figure: str) -> bool:
    """Whether a text has all numbers of a figure, each with its unit."""
    unit = re.sub(rf"{NUMBER}|to| ", "", figure)
    for number in re.findall(NUMBER, figure):
        forms = [rf"{re.escape(number)} ?{re.escape(unit)}(?!\w)"]
        if " to " in figure:
            forms += [rf"{re.escape(number)} to "]
        if unit == "%":
            forms += [rf"{re.escape(f'{float(number) / 100:.6g}')}0?(?![\d.])"]
        if not any(re.search(rf"(?<![\w.,]){form}", text) for form in forms):
            return False
    return bool(re.search(NUMBER, figure))


def listed(block: str, figure: re.Match[str]) -> bool:
    """Whether a row has the figure: all of it, and for what was timed its command beside it."""
    flat = block.replace("\n", " ")
    for words in [*SET, *(words for words, command in TIMED.items() if command in flat)]:
        for row in re.finditer(rf"(?<!\d){re.escape(words)}", flat):
            if row.start() <= figure.start() and figure.end() <= row.end():
                return True
    return False


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_figure_has_a_source(name: str) -> None:
    assert unsourced((ROOT / name).read_text()) == []


def test_every_row_is_of_words_that_are_there() -> None:
    whole = " ".join((ROOT / name).read_text().replace("\n", " ") for name in DOCUMENTS)
    assert [words for words in [*SET, *TIMED] if words not in whole] == []


@pytest.mark.parametrize("words", SET)
def test_what_is_set_is_so(words: str) -> None:
    name, text = SET[words]
    assert text in (ROOT / name).read_text()


@pytest.mark.parametrize("command", sorted({c for c in TIMED.values() if c.startswith("make ")}))
def test_a_command_is_there(command: str) -> None:
    target = command.removeprefix("make ")
    assert re.search(rf"^{target}:.* ##", (ROOT / "Makefile").read_text(), re.MULTILINE)


RUN = "local-llamacpp-cpu-270m-q4_k_m/benchmarks/runs/2026-12-01-builds-cpu/REPORT.md"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("In a container it runs at 1.004 of it (95% 0.994 to 1.015).", 4),
        (f"It runs at 1.044x ([run]({RUN})).", 0),
        (f"It runs at 1.045x ([run]({RUN})).", 1),
        (f"It runs at 1.044x.\n\nAnother ([run]({RUN})).", 1),
        (f"It runs at 1.044x ([run]({RUN.replace('builds', 'tea')})).", 1),
        ("It held in 92.5 to 98.5% (`tests/measure/test_stats.py`).", 0),
        ("It held in 91.5 to 98.5% (`tests/measure/test_stats.py`).", 1),
        ("The engine is an engine of 34 MB.", 1),
        ("`make demo` fetches an engine of 34 MB.", 0),
        ("`make demo` fetches an engine of 35 MB.", 1),
        ("It took half an hour, 12.3 tokens/s.", 2),
        ("Gemma 4 at 127.0.0.1:8080, Q4_0, 6 prompts, llama.cpp b11434", 0),
    ],
)
def test_a_figure_without_a_source_is_found(text: str, missing: int) -> None:
    assert len(unsourced(text)) == missing
