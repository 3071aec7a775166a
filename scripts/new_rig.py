"""Make a rig for another card: its folder, its services in compose.yaml and its line in README.md.

Nothing is measured.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from common.errors import RigError
from common.rigs import cards, fitting, known_answer, services, sizes
from common.rigs import folder as rig_folder
from common.rigs.blueprint import Blueprint
from common.rigs.cards import Card
from common.rigs.known_answer import KnownAnswer
from scripts import _cli


def body(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="make new-rig", description=__doc__)
    parser.add_argument("--size", help=f"the model: {', '.join(sizes.SIZES)}, {known_answer.SIZE}")
    parser.add_argument("--encoding", default="q4_0", help=", ".join(sizes.ENCODINGS))
    parser.add_argument("--gpu", help="the card's name; without it the card of this host")
    parser.add_argument("--list", action="store_true", help="only show what would fit which card")
    args = parser.parse_args(arguments)
    encoding = sizes.check_encoding(args.encoding)
    if args.list:
        _list(encoding, [cards.find(args.gpu)] if args.gpu else list(cards.CARDS.values()))
        return
    if not args.size:
        parser.error(f"name the model: make new-rig SIZE={'|'.join(sizes.SIZES)} [GPU=L4]")
    if args.size == known_answer.SIZE and encoding == sizes.DRAFTER_ENCODING:
        _made(rig_folder.make(KnownAnswer(cards.find(args.gpu))), "")
        return
    size = sizes.find(args.size)
    card = cards.find(args.gpu)
    fit = fitting.fit(card, size, encoding)
    folder = rig_folder.make(Blueprint(card, size, encoding, fit))
    for part, mib in fitting.table(fit.need, card):
        _cli.say(f"  {part:<40} {mib:>9,.0f} MiB")
    _made(folder, ", from an estimate of memory")


def _made(folder: Path, how: str) -> None:
    _cli.say(
        f"made {folder.name} with its service in {services.COMPOSE} and its line in "
        f"{rig_folder.README}{how}"
    )
    _cli.say("nothing of it has been measured; on the host with the card:")
    _cli.say(f"  make -C {folder.name} doctor")


def _list(encoding: str, known: Sequence[Card]) -> None:
    rows = [
        [card.slot, size.name, *_row(card, size, encoding)]
        for card in known
        for size in sizes.SIZES.values()
    ]
    names = ["card", "size", "MiB of", "CTX_SIZE", "slots", "longctx", "sweep", "longmixed"]
    align = ["left", "left", *["right"] * 6]
    _cli.say(f"{encoding}, from an estimate of memory; nothing of it has been measured")
    _cli.say(tabulate(rows, names, "simple", colalign=align, disable_numparse=True))


def _row(card: Card, size: sizes.Size, encoding: str) -> list[str]:
    try:
        fit = fitting.fit(card, size, encoding)
    except RigError:
        return [f"{card.memory_mib}", "does not fit", "", "", "", ""]
    loads = [
        fit.longctx and fit.longctx.ctx_size,
        fit.sweep and fit.sweep.slots,
        fit.longmixed and fit.longmixed.slots,
    ]
    first = [f"{fit.need.total:.0f} of {card.memory_mib}", fit.serve.ctx_size, fit.serve.slots]
    return [str(value or "-") for value in (*first, *loads)]


if __name__ == "__main__":
    _cli.main(body)
