"""MCP tools: the rig itself: its settings, this host, its files, its memory, the card."""

from functools import partial
from typing import Annotated, Literal

from mcp.server.mcpserver import Context
from pydantic import Field

from common import digest, places
from common.engines.llamacpp import build, memory, serve
from common.errors import RigError
from common.files import listing, wanted
from common.files.wanted import Wanted
from common.host import card, doctor, room
from common.mcp import answers
from common.mcp.notices import meanwhile, tell
from common.mcp.toolbox import Toolbox

Change = Literal["CTX_SIZE", "PARALLEL", "CACHE_TYPE_K", "CACHE_TYPE_V", "KV_UNIFIED"]
Changes = Annotated[
    dict[Change, Annotated[str, Field(max_length=32)]],
    Field(description="settings to try, as in tpu.env, such as CTX_SIZE: 16384"),
]


class RigTools(Toolbox):
    """Tools that look at one rig and this host; only fetch_files changes anything."""

    def show_configuration(self) -> answers.Configuration:
        """Show every setting of this rig and the llama-server command line that it makes."""
        try:
            built = build.find(self.rig)
        except RigError:
            built = None
        program = built.server if built else "llama-server"
        line = serve.command(self.rig, program)
        return answers.Configuration(
            rig=self.rig.name,
            folder=str(self.rig.folder),
            address=f"{self.rig.url}/v1",
            settings=self.rig.settings(),
            overridden=list(self.rig.overridden),
            command=line,
            when_measuring=serve.command(self.rig, program, measuring=True)[len(line) :],
            engine=built.title if built else None,
        )

    def check_host(self) -> answers.Host:
        """Check what this host has and lacks for the rig: engine, files, card, memory, disk, port.

        Each lack comes with its fix. A port in use is a lack, also by this rig's own server.
        """
        checks = [
            answers.HostCheck.model_validate(
                {"name": c.name, "state": c.state, "text": c.text, "fix": c.fix or None}
            )
            for c in doctor.examine(self.rig, "host")
        ]
        return answers.Host(can_run=all(c.state != "lacks" for c in checks), checks=checks)

    def list_files(self) -> answers.ModelFiles:
        """List the rig's model files: whether they are here, and what is known of their digests.

        Reads no file; verify_files does.
        """
        found = [self._file(file, self._known(file)) for file in wanted.wanted(self.rig)]
        return answers.ModelFiles(folder=str(places.models()), files=found, messages=[])

    def verify_files(self, context: Context) -> answers.ModelFiles:
        """Read the rig's model files and hold their SHA-256 against the pins; 5 GB take seconds."""
        found = []
        for file in wanted.wanted(self.rig):
            state = "not here; fetch_files brings it"
            if file.path.is_file():
                state = meanwhile(context, f"reading {file.name}", partial(_verify, file))
            found.append(self._file(file, state))
        return answers.ModelFiles(folder=str(places.models()), files=found, messages=[])

    def fetch_files(
        self, context: Context, which: Literal["model", "drafter", "both"] = "both"
    ) -> answers.ModelFiles:
        """Bring the rig's model files to the models folder, checked. Gigabytes for a real model.

        What is here already is not fetched again; a broken download goes on where it stopped.
        """
        messages: list[str] = []

        def say(text: str) -> None:
            messages.append(text)
            tell(context, len(messages), None, text)

        last = 0

        def progress(name: str, done: int, total: int) -> None:
            nonlocal last
            if done - last > total / 100 or done == total or done < last:
                last = done
                tell(context, done, total, f"{name}: {done / 1e6:,.1f} of {total / 1e6:,.1f} MB")

        roles = wanted.ROLES if which == "both" else (which,)
        wanted.fetch(self.rig, say, progress, roles)
        found = [self._file(file, self._known(file)) for file in wanted.wanted(self.rig)]
        return answers.ModelFiles(folder=str(places.models()), files=found, messages=messages)

    def _known(self, file: Wanted) -> str:
        if not file.path.is_file():
            return "not here; fetch_files brings it"
        if digest.recorded(file.path) is None:
            return "here, not checked yet; verify_files does"
        return wanted.judgement(file)

    def _file(self, file: Wanted, state: str) -> answers.ModelFile:
        here = file.path.is_file()
        known = (digest.recorded(file.path) or {}) if here else {}
        return answers.ModelFile.model_validate(
            {
                "role": file.role,
                "name": file.name,
                "here": here,
                "bytes": file.path.stat().st_size if here else None,
                "sha256": known.get("sha256"),
                "state": state,
            }
        )

    def estimate_memory(self, changes: Changes | None = None) -> answers.Memory:
        """Estimate what the rig needs in MiB, by parts, also with other settings tried.

        Nothing is started or changed. The model files must be here: the estimate reads them.
        """
        rig = self.rig.variant({str(key): value for key, value in (changes or {}).items()})
        need = memory.need(rig)
        if need is None:
            raise RigError(f"a model file of {rig.name} is not here; bring it with fetch_files")
        free, where = self._free()
        return answers.Memory(
            need_mib=need.total,
            parts_mib=dict(need.parts()),
            free_mib=free,
            where=where,
            fits=None if free is None else need.total <= free,
        )

    def _free(self) -> tuple[float | None, str]:
        try:
            own = card.find(self.rig)
        except RigError as error:
            return None, str(error)
        if own is None:
            return room.free_mib()
        return own.memory_mib()[0], own.name

    def sample_card(self) -> answers.Cards:
        """Read the NVIDIA cards of this host: clocks, heat, power, memory, throttling.

        Without a card the list is empty and `note` says why; nothing is made up.
        """
        note = None
        try:
            present = card.cards()
        except RigError as error:
            return answers.Cards(cards=[], note=str(error))
        try:
            own = card.find(self.rig)
        except RigError as error:
            own, note = None, str(error)
        if self.rig.backend == "cpu":
            note = f"{self.rig.name} runs on the CPU and needs no card"
        read = []
        for one in present:
            mine = own is not None and (one.name, one.uuid) == (own.name, own.uuid)
            read.append(_sample(one, mine))
        return answers.Cards(cards=read, note=note)


def _verify(file: Wanted) -> str:
    _sha256, state = listing.checked(file, digest.anew)
    return state


def _sample(one: card.Card, mine: bool) -> answers.CardSample:
    sample = one.sample()
    return answers.CardSample(
        name=one.name,
        of_this_rig=mine,
        clock_mhz=sample.clock_mhz,
        memory_clock_mhz=sample.memory_clock_mhz,
        temperature_c=sample.temperature_c,
        power_w=sample.power_w,
        memory_used_mib=sample.memory_mib,
        memory_total_mib=one.memory_mib()[1],
        utilization_pct=sample.utilization_pct,
        throttles=None if sample.throttles is None else list(sample.throttles),
    )
