"""What `make tune` measures on a rig: the levers and their options, the prompts per workload."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from common.errors import RigError
from common.kinds.tune import course
from common.kinds.tune.course import CHOOSE, CONFIRM, Changes, Space
from common.measure.arms import headline
from common.measure.kind import Tools
from common.measure.plan import Cell, Plan, Round
from common.measure.texts import Document, Tokenizer, document, made, prompts
from common.rig import Rig
from common.serving import client

PROMPTS = Path(__file__).with_name("prompts.yaml")

TOKENS = 128
DOCUMENT_TOKENS = 2000
AT_ONCE = 8
OWN_TEXT = 400  # characters before which each of many requests stands
ROOM = 700  # tokens that each of many requests needs: its text, its task, its reply
# Prompts before each decision, and rounds of the confirmation, of one prompt each: both even in
# number, for every second one has the arms in reverse.
LOOKS, PER_LOOK = 4, 3
ROUNDS = 16
MIXED = 2  # tasks of one confirming batch of many
QUICK_TOKENS, QUICK_DOCUMENT_TOKENS = 48, 500
QUICK_LOOKS, QUICK_PER_LOOK = 2, 3
QUICK_ROUNDS = 4
# The levers' options.
P_MINS = ("0.5", "0.75")
UBATCH_SIZES = (256, 1024)
CACHE_TYPES = ("f16", "q8_0")
BATCH_DEFAULT = 2048  # llama-server's own BATCH_SIZE
BY_WORKLOAD = {"chat": (), "documents": ("batch",), "many": ("batch", "kv-layout")}
Words = list[tuple[str, str]]
Part = TypeVar("Part")


def base(rig: Rig) -> Rig:
    """The rig with the slots that its workload needs. Raises RigError if they do not fit."""
    if rig.tune_for != "many":
        return rig.variant({"PARALLEL": "1"})
    at_once = rig.parallel or min(AT_ONCE, rig.sweep_parallel or AT_ONCE)
    if rig.ctx_size // at_once < ROOM:
        raise RigError(
            f"{rig.name}: {at_once} slots of CTX_SIZE={rig.ctx_size} hold "
            f"{rig.ctx_size // at_once} tokens each, TUNE_FOR=many needs {ROOM}; raise CTX_SIZE "
            "or lower PARALLEL"
        )
    return rig.variant({"PARALLEL": str(at_once)})


def levers(rig: Rig) -> dict[str, list[Changes]]:
    """TUNE_LEVERS, or what suits the rig and workload, each with its options.

    KV types are no default: they change what the model computes, so the text may change.
    """
    names = rig.tune_levers
    if not names:
        drafting = ("draft", "types") if _kinds(rig) else ()
        sure = ("p-min",) if _with_file(rig) else ()
        names = (*drafting, *sure, *BY_WORKLOAD[rig.tune_for])
    return {name: OPTIONS[name](rig) for name in names}


def _kinds(rig: Rig) -> tuple[str, ...]:
    """The draft types to try: those that `speed` compares, else the rig's own."""
    own = rig.spec_type or ("draft-mtp" if rig.spec_draft_model else None)
    kinds = rig.speed_spec_types or ((own,) if own else ())
    return tuple(kind for kind in kinds if rig.variant({"SPEC_TYPE": kind}).drafts)


def _with_file(rig: Rig) -> bool:
    """Whether a draft type to try reads a drafter file."""
    return any(rig.variant({"SPEC_TYPE": kind}).needs_drafter for kind in _kinds(rig))


def _draft(rig: Rig) -> list[Changes]:
    """No drafter; each draft type, at each length if it has one."""
    found: list[Changes] = [{"SPEC_TYPE": ""}]
    for kind in _kinds(rig):
        if rig.variant({"SPEC_TYPE": kind}).needs_drafter:
            lengths = range(1, rig.tune_n_max + 1)
            found += [{"SPEC_TYPE": kind, "SPEC_DRAFT_N_MAX": str(n)} for n in lengths]
        else:
            found.append({"SPEC_TYPE": kind})
    return found


def _types(rig: Rig) -> list[Changes]:
    """Draft types joined to the best: guesses from text seen before need no file."""
    joined = ("ngram-mod",) if _with_file(rig) else ("ngram-mod", "ngram-simple")
    return [{"SPEC_TYPE": f"+{kind}"} for kind in joined]


def _p_min(rig: Rig) -> list[Changes]:
    """At the best length, and at the longest: p-min ends a draft early, so a longer one may pay."""
    found: list[Changes] = [{"SPEC_DRAFT_P_MIN": ""}]
    for value in P_MINS:
        found.append({"SPEC_DRAFT_P_MIN": value})
        found.append({"SPEC_DRAFT_P_MIN": value, "SPEC_DRAFT_N_MAX": str(rig.tune_n_max)})
    return found


def _batch(rig: Rig) -> list[Changes]:
    """Sizes of one pass; BATCH_SIZE is raised where it would be smaller."""
    found: list[Changes] = [{"UBATCH_SIZE": ""}]
    for size in UBATCH_SIZES:
        change = {"UBATCH_SIZE": str(size)}
        if size > (rig.batch_size or BATCH_DEFAULT):
            change["BATCH_SIZE"] = str(size)
        found.append(change)
    return found


def _kv_layout(rig: Rig) -> list[Changes]:
    return [{"KV_UNIFIED": "0" if rig.kv_unified == "1" else "1"}]


def _kv_type(_rig: Rig) -> list[Changes]:
    return [{"CACHE_TYPE_K": kind, "CACHE_TYPE_V": kind} for kind in CACHE_TYPES]


OPTIONS: dict[str, Callable[[Rig], list[Changes]]] = {
    "draft": _draft,
    "types": _types,
    "p-min": _p_min,
    "batch": _batch,
    "kv-layout": _kv_layout,
    "kv-type": _kv_type,
}


def plan(rig: Rig, tokenizer: Tokenizer | None = None, quick: bool = False) -> Plan:
    """The plan for a rig that `base` made; documents need a tokenizer.

    Raises RigError if there is nothing to try, or the document is too short.
    """
    about: dict[str, Any] = {"workload": rig.tune_for}
    looks = (QUICK_LOOKS, QUICK_PER_LOOK) if quick else (LOOKS, PER_LOOK)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    mixed = MIXED if rig.tune_for == "many" else 1
    choose = _words(f"{rig.tune_for}-{CHOOSE}-", looks[0] * looks[1])
    confirm = _words(f"{rig.tune_for}-{CONFIRM}-", rounds * mixed)
    tokens = QUICK_TOKENS if quick else TOKENS
    if rig.tune_for == "documents":
        assert tokenizer is not None
        source = document(rig)
        about |= source.about()
        length = QUICK_DOCUMENT_TOKENS if quick else DOCUMENT_TOKENS
        texts = _behind(source, length, tokenizer, choose + confirm)
        bodies = [[_body(text, tokens)] for text in texts]
        if length + ROOM > rig.ctx_size:
            raise RigError(f"{rig.name}: CTX_SIZE={rig.ctx_size} is too small for {length} tokens")
    elif rig.tune_for == "many":
        bodies = _many(rig.parallel or 1, _parts(choose, looks[1]), _parts(confirm, mixed), tokens)
    else:
        bodies = [[_body(text, tokens)] for _name, text in choose + confirm]
    names = _named(CHOOSE, choose) + _named(CONFIRM, confirm[::mixed])
    cells = [
        Cell(name, asked, {"use": name.split("-")[0]})
        for name, asked in zip(names, bodies, strict=True)
    ]
    space = Space(
        rig.settings(),
        levers(rig),
        _parts(names[: len(choose)], looks[1]),
        _parts(names[len(choose) :], 1),
        headline(rig),
    )
    start = course.replay(space, [])
    if all(stage.skipped for stage in start.stages):
        raise RigError(
            f"{rig.name}: nothing to try; set SPEC_TYPE and SPEC_DRAFT_MODEL, SPEED_SPEC_TYPES or "
            "TUNE_LEVERS"
        )
    return Plan(
        "tune",
        list(start.arms.values()),
        cells,
        _rounds(space),
        quick,
        mark_failures=True,
        inputs={**about, **space.to_json()},
        follow=lambda lines: course.replay(space, lines).todo,
        at_most=course.at_most(space),
        prompts=PROMPTS,
    )


def _rounds(space: Space) -> list[Round]:
    """Every round that may come, for the manifest; which do is decided on the way."""
    found = [
        space.look(lever, index) for lever in space.levers for index in range(len(space.looks))
    ]
    return [*found, *course.confirm_rounds(space), space.drift()]


def _words(prefix: str, count: int) -> Words:
    """The first so many tasks of a use, each with its name; none comes twice.

    A setting may suit one task more than another, so a task asked in two rounds would make them
    look more alike than other tasks are.
    """
    found = [
        (name.removeprefix(prefix), text)
        for name, text in prompts(PROMPTS).items()
        if name.startswith(prefix)
    ]
    assert len(found) >= count, f"{PROMPTS} has {len(found)} of {prefix}, {count} are asked"
    return found[:count]


def _named(use: str, asked: Words) -> list[str]:
    """Names of cells."""
    return [f"{use}-{index + 1}-{name}" for index, (name, _text) in enumerate(asked)]


def _body(text: str, tokens: int) -> dict[str, Any]:
    """A request for exactly `tokens` tokens, so that every arm does the same work."""
    return {**client.chat(text, tokens), "ignore_eos": True}


def _behind(source: Document, tokens: int, tokenizer: Tokenizer, asked: Words) -> list[str]:
    """Each task behind a part of the document of its own, of exact length."""
    texts = []
    for index, (name, words) in enumerate(asked):
        start = len(source.text) * index // len(asked)
        text = tokenizer.cut(source.text[start:], tokens)
        if text is None:
            raise RigError(f"the document ({source.origin}) is too short for {name}")
        texts.append(f"{text}\n\n{words}")
    return texts


def _many(
    at_once: int, looks: Sequence[Words], rounds: Sequence[Words], tokens: int
) -> list[list[dict[str, Any]]]:
    """Batches of different requests, each before a made-up text of its own.

    A look has as many batches as tasks and mixes them in each, a confirming round has one.
    """
    firsts = [(tasks, first) for tasks in looks for first in range(len(tasks))]
    batches: list[list[dict[str, Any]]] = []
    for tasks, first in [*firsts, *((tasks, 0) for tasks in rounds)]:
        requests = []
        for slot in range(at_once):
            _name, words = tasks[(first + slot) % len(tasks)]
            seed = 1000 * len(batches) + slot
            requests.append(_body(f"{words}\n\n{made(seed, OWN_TEXT)}", tokens))
        batches.append(requests)
    return batches


def _parts(found: Sequence[Part], size: int) -> list[list[Part]]:
    return [list(found[start : start + size]) for start in range(0, len(found), size)]


def planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    rig = base(rig)
    if rig.tune_for == "documents":
        return rig, tools.with_tokenizer(rig, lambda tokenizer: plan(rig, tokenizer, tools.quick))
    return rig, plan(rig, quick=tools.quick)
