"""Makes data/lm_eval/gsm8k.jsonl here: made-up replies with the own verdicts of lm_eval.

Needs lm_eval, which this project does not install; in an environment of its own:

    python -m venv /tmp/lm-eval && /tmp/lm-eval/bin/pip install --no-deps lm_eval==0.4.13
    /tmp/lm-eval/bin/pip install numpy pyyaml jinja2 sacrebleu word2number more-itertools \
        typing_extensions
    /tmp/lm-eval/bin/python tests/kinds/accuracy/make_lm_eval.py

Task file, filters and metric are the package's; only the replies are from here.
"""

import json
import random
from pathlib import Path
from typing import Any

import lm_eval
import yaml
from lm_eval.api.instance import Instance
from lm_eval.api.metrics import exact_match_fn
from lm_eval.filters import build_filter_ensemble

OUT = Path(__file__).parent / "data" / "lm_eval" / "gsm8k.jsonl"
TASK = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
COUNT = 400
VALUES = ["18", "-3", "1200", "0", "7", "1234567", "2.5", "70000"]
SHAPES = """{v}|{c}|${v}|${c}|{v}.|{v}.00|{c}.50|-{v}|{v}%|{v} apples|**{v}**|<{v}>|= {v}|: {v}
 {v}|{v} |\\${v}|\\boxed{{{v}}}|{v}/2|1 1/2|0{v}|.{v}|{v},|{v}..
{v}e3|+{v}|\u2212{v}|\u20ac{v}
R{v}|{v}km
1,00,000|1'234|\u0661\u0668|\uff11\uff18|$|.|,|$.,|x{v}|{v}-{v}|{v}#|unknown||-|--{v}|-${v}|$-{v}"""
BEFORE = [
    "",
    "{n} + 2 = {v}\n",
    "Step 1: add {n} and {n}.\n",
    "<<{n}*2={v}>>{v}\n",
    "#### {n}\nNo, wait.\n",
    "The total is ${c}.\n",
    "Sorry, ",
    "### Answer\n",
    "#### Step 2\n",
]
MARKS = ["#### "] * 8 + ["####", "### ", "##### ", "####  ", "####\n", "**#### ", "A: ", "", "is"]
AFTER = [
    "",
    "",
    "",
    "\n",
    ".",
    " ####",
    "\n####",
    "\n\nQuestion: {n} and {n}?\nAnswer: It is {n}.\n#### {n}",
    "\nThat took {n} steps.",
    " (from {n}.6)",
    "\n$",
    " dollars. $1,000.",
    "<|im_end|>",
]


def shapes() -> list[str]:
    return [shape for line in SHAPES.splitlines() for shape in line.split("|")]


def made(draw: random.Random) -> tuple[str, str]:
    """A reply and the reference solution that it is held against."""
    value = draw.choice(VALUES)
    commas = f"{int(value):,}" if value.lstrip("-").isdigit() else value
    words = {"v": value, "c": commas, "n": str(draw.randint(2, 99))}
    shape = draw.choice(shapes()[:4] if draw.random() < 0.4 else shapes())
    parts = (draw.choice(BEFORE), draw.choice(MARKS), shape, draw.choice(AFTER))
    reply = "".join(part.format(**words) for part in parts)
    truth = draw.choice([commas, commas, commas, f"${commas}", words["n"], f"{value}."])
    return reply, f"{words['n']} of them make <<1+1=2>>{value}.\n#### {truth}"


def judge(task: dict[str, Any], reply: str, solution: str) -> dict[str, bool]:
    """What each of the task's filters and its metric make of a reply."""
    (metric,) = task["metric_list"]
    options = ("ignore_case", "ignore_punctuation", "regexes_to_ignore")
    found = {}
    for one in task["filter_list"]:
        steps = [
            (step["function"], {k: v for k, v in step.items() if k != "function"})
            for step in one["filter"]
        ]
        instance = Instance("generate_until", {}, ("", {}), 0, ("gsm8k", 0, 1), [reply])
        build_filter_ensemble(one["name"], steps).apply([instance])
        read = instance.filtered_resps[one["name"]]
        told = exact_match_fn(
            predictions=[read], references=[solution], **{key: metric[key] for key in options}
        )
        found[one["name"]] = bool(told["exact_match"])
    return found


def main() -> None:
    task = yaml.safe_load(TASK.read_text(encoding="utf-8"))
    draw = random.Random(13)  # noqa: S311 (text, not a secret)
    pairs: dict[tuple[str, str], None] = {}
    while len(pairs) < COUNT:
        pairs[made(draw)] = None
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", encoding="utf-8") as file:
        for reply, solution in pairs:
            line = {"reply": reply, "solution": solution, **judge(task, reply, solution)}
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
