"""Blueprint: the files of a new rig, as text, from a card, a model size and an encoding."""

from dataclasses import dataclass
from pathlib import Path
from string import Template

from tabulate import tabulate

from common.engines.llamacpp.memory import DEFAULT_SLOTS, Load
from common.rigs import fitting
from common.rigs.cards import CUDA_VERSION, OLD_CUDA_VERSION, Card
from common.rigs.fitting import Fit
from common.rigs.sizes import DRAFTER_ENCODING, Size

TEMPLATES = Path(__file__).with_name("templates")
MAKEFILE = "include ../common/rig.mk\n"
COMMIT = "77c4540ce"
"""the llama.cpp commit of the published study, as in the shipped rigs"""
SUGGESTED_CUDA_VERSION = "12.8.1"
"""what llama.cpp suggests for cards without tensor cores; older than what any card is built with"""
PORT = 8080
HOST_GIB = 5
"""what the server may take of the host's memory beside its model file"""
STUDY = {
    True: "Two drafted tokens were the best length in the published study on an RTX 3050, which\n"
    "has tensor cores too.",
    False: "One drafted token was the best length in the published study on a GTX 1650 Ti, which\n"
    "has no tensor cores either.",
}
KNOWN_MODEL = "# the model; no digest has been published"
KNOWN_DRAFTER = "# the drafter; of its digest only the first 16 digits have been published."
NO_MODEL = (
    "# the model; no repository is known to hold this file. Name one in MODEL_HF, or put the file\n"
    "# into the models folder (make files shows which)."
)
NO_DRAFTER = (
    "# the drafter; no repository is known to hold this file. Name one in SPEC_DRAFT_HF, or put\n"
    "# the file into the models folder, or make it: REPACK_HF below, then make repack."
)


@dataclass(frozen=True)
class Blueprint:
    """A rig that does not exist yet."""

    card: Card
    size: Size
    encoding: str
    fit: Fit

    @property
    def name(self) -> str:
        return f"local-llamacpp-{self.card.slot}-{self.size.name}-{self.encoding}"

    def files(self) -> dict[str, str]:
        """Name and text of every file in the rig's folder."""
        return {
            "tpu.env": filled("tpu.env", self._settings()),
            "Makefile": MAKEFILE,
            "README.md": filled("README.md", self._reasons()),
        }

    @property
    def memory(self) -> str:
        """What its server may take of the host's memory, as compose.yaml says it."""
        return f"{-(-int(self.size.file_gib(self.encoding) + HOST_GIB) // 4) * 4}g"

    @property
    def row(self) -> str:
        """Its line in README.md's table of rigs."""
        return row(self.name, self.card, f"Gemma 4 {self.size.title}")

    def _settings(self) -> dict[str, object]:
        size, fit = self.size, self.fit
        known = size.model_hub(self.encoding)
        return {
            **of_card(self.card),
            "title": f"Gemma 4 {size.title}",
            "made_from": " from an estimate of memory (README.md)",
            "model_note": KNOWN_MODEL if known else NO_MODEL,
            "model": size.model_file(self.encoding),
            "model_hub": known or "",
            "drafter_note": KNOWN_DRAFTER if size.drafter_hub else NO_DRAFTER,
            "drafter": size.drafter_file,
            "drafter_hub": size.drafter_hub or "",
            "drafter_sha256": size.drafter_sha256,
            "ctx_size": fit.serve.ctx_size,
            "parallel": fit.parallel or "",
            "longctx_depths": fit.depths,
            "longctx_ctx_size": fit.longctx.ctx_size if fit.longctx else "",
            "sweep_parallel": fit.sweep.slots if fit.sweep else "",
            "sweep_ctx_size": fit.sweep.ctx_size if fit.sweep else "",
            "longmixed_parallel": fit.longmixed.slots if fit.longmixed else "",
            "longmixed_ctx_size": fit.longmixed.ctx_size if fit.longmixed else "",
            "checkpoint": size.checkpoint or "",
            "shape": size.shape_name,
        }

    def _reasons(self) -> dict[str, object]:
        card = self.card
        specified = "public specifications of the card"
        return {
            **self._settings(),
            "encoding_upper": self.encoding.upper(),
            "card_name": card.name,
            "source": "what NVML says of the card" if card.from_nvml else specified,
            "about": card.about,
            "capability": f"{card.capability[0]}.{card.capability[1]}",
            "tensor_cores": "tensor cores" if card.tensor_cores else "no tensor cores",
            "memory": card.memory_mib,
            "power": f", power limit {card.power_w} W" if card.power_w else "",
            "draft_reason": STUDY[card.tensor_cores],
            "context_reason": self._context_reason(),
            "arithmetic": self._arithmetic(),
            "files": self._files_text(),
        }

    def _context_reason(self) -> str:
        tokens = f"{self.fit.serve.ctx_size:,} tokens"
        if self.fit.parallel is None:
            return (
                f"A context of {tokens}, shared by the {DEFAULT_SLOTS} slots that llama-server "
                "makes unasked, is the largest step that fits."
            )
        return (
            f"{DEFAULT_SLOTS} slots that share {fitting.ENOUGH:,} tokens do not fit, so there is "
            f"one; its context of {tokens} is the largest step that fits."
        )

    def _arithmetic(self) -> str:
        """A table: the parts of each measurement's memory, in MiB."""
        loads: list[tuple[str, Load | None]] = [
            ("serve", self.fit.serve),
            ("longctx", self.fit.longctx),
            ("sweep", self.fit.sweep),
            ("longmixed", self.fit.longmixed),
        ]
        heads, tables = ["MiB"], []
        for name, load in loads:
            if load is not None:
                slots = f"{load.slots} slot{'s' if load.slots > 1 else ''}"
                heads.append(f"{name}: {load.ctx_size} tokens, {slots}")
                need = fitting.need(self.size, self.encoding, load)
                tables.append(fitting.table(need, self.card))
        rows = [
            [parts[0][0], *(f"{mib:,.0f}" for _part, mib in parts)]
            for parts in zip(*tables, strict=True)
        ]
        align = ["left", *["right"] * len(tables)]
        return tabulate(rows, heads, "github", colalign=align, disable_numparse=True)

    def _files_text(self) -> str:
        size = self.size
        gib = size.file_gib(self.encoding)
        lines = [f"The model's file is about {gib:.1f} GiB, counted from the layer sizes."]
        if size.model_hub(self.encoding) is None:
            lines.append(
                "No repository is known to hold it: name one in `MODEL_HF` of tpu.env, or put the "
                "file into the models folder."
            )
        if size.drafter_hub is None:
            lines.append(
                "Nor is one known for the drafter, whose layer sizes are published for 31B and are "
                "taken to be much the same for 12B and 26B-A4B."
            )
        if self.encoding != DRAFTER_ENCODING:
            lines.append(f"The drafter is in {DRAFTER_ENCODING.upper()}.")
        return "\n".join(lines)


def row(name: str, card: Card, model: str) -> str:
    """A rig's line in README.md's table of rigs."""
    known = f"{card.gpu_name.replace('_', ' ')}, {card.memory_mib / 1024:.0f} GB"
    return f"| [{name}]({name}/README.md) | {known} | {model} |\n"


def of_card(card: Card) -> dict[str, object]:
    """What a new tpu.env says of its card and of the engine for it, whatever the model."""
    return {
        "card": card.gpu_name.replace("_", " "),
        "draft_length": 2 if card.tensor_cores else 1,
        "port": PORT,
        "commit": COMMIT,
        "cuda_version": card.cuda_version,
        "architectures": card.architectures,
        "cmake_extra": card.cmake_extra,
        "gpu_name": card.gpu_name,
        "tune_n_max": 4 if card.tensor_cores else 3,
        **_other_build(card),
    }


def _other_build(card: Card) -> dict[str, str]:
    """What `make builds` compares the rig's own build with."""
    if card.tensor_cores:
        newest = card.cuda_version == CUDA_VERSION
        older = OLD_CUDA_VERSION if newest else SUGGESTED_CUDA_VERSION
        return {
            "builds_reason": "an older CUDA",
            "builds_cuda_version": older,
            "builds_architectures": "",
            "builds_cmake_extra": "",
        }
    return {
        "builds_reason": "what llama.cpp suggests for cards without tensor cores",
        "builds_cuda_version": SUGGESTED_CUDA_VERSION,
        "builds_architectures": "61-virtual,80-virtual",
        "builds_cmake_extra": "-DGGML_CUDA_FORCE_MMQ=ON",
    }


def filled(name: str, values: dict[str, object]) -> str:
    """The text of a template with these values in it."""
    text = (TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")
    return Template(text).substitute(values)
