"""MCP tools: measurements in the background, the runs there are, and what they recommend."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from mcp.server.mcpserver import Context
from pydantic import Field

from common import rig
from common.errors import RigError
from common.mcp import answers, jobs, recommend
from common.mcp.jobs import Job
from common.mcp.notices import meanwhile, tell
from common.mcp.recommend import Workload
from common.mcp.toolbox import Toolbox
from common.measure import run
from common.measure.journal import Manifest

Name = Annotated[str, Field(min_length=1, max_length=200)]
# The names of the registered measurements, for the client's schema.
if TYPE_CHECKING:
    Measurement = str
else:
    Measurement = Literal[jobs.KINDS]
MOST_COMPARED = 200_000  # characters
MOST_READ = 64 << 20  # bytes
MOST_DAMAGED = 20
# What read_run can read, and the file it is in.
PARTS = {"report": "REPORT.md", "summary": run.SUMMARY, "manifest": run.MANIFEST}


class RunTools(Toolbox):
    """Tools on one rig's jobs and runs. Runs are found by listing; no path is made of a name."""

    def start_measurement(
        self,
        kind: Measurement,
        quick: bool = False,
        resume: bool = False,
        workload: Workload = "chat",
    ) -> answers.JobInfo:
        """Start a measurement as a background job; it goes on when this session ends.

        {measurements}
        `workload` is what tune finds the best settings for; the others ignore it. `quick` is a
        short look, which {without_quick} do not have; a full one takes minutes to hours. `resume`
        continues the last unfinished run. One measurement runs at a time, and not beside this
        rig's server.
        """
        settings = {"TUNE_FOR": workload} if kind == "tune" else {}
        return self._info(jobs.measure(self.rig, kind, quick, resume, settings))

    def list_jobs(self, limit: Annotated[int, Field(ge=1, le=100)] = 20) -> answers.Jobs:
        """List this rig's background jobs, the newest first: measurements, and servers."""
        return answers.Jobs(jobs=[self._info(job) for job in jobs.of_rig(self.rig)[:limit]])

    def follow_job(
        self,
        context: Context,
        job: Name,
        wait_s: Annotated[int, Field(ge=0, le=600)] = 0,
        lines: Annotated[int, Field(ge=0, le=200)] = 20,
    ) -> answers.Followed:
        """Look at a job: state, trials done, last log lines; waits up to `wait_s` for its end."""
        found = jobs.find(self.rig, job)
        begin = time.monotonic()
        while found.state == "running" and time.monotonic() - begin < wait_s:
            done, total = found.trials()
            said = found.log_lines(1)
            tell(context, done, total, said[0] if said else found.record.verb)
            time.sleep(min(1.0, max(0.0, wait_s - (time.monotonic() - begin))))
        info = self._info(found)
        answer = None
        folder = found.run_folder
        if info.state == "finished" and folder is not None:
            answer = recommend.answer(folder)
        log = [line[:2000] for line in found.log_lines(lines)] if lines else []
        return answers.Followed(job=info, log=log, answer=answer)

    def cancel_job(self, context: Context, job: Name) -> answers.JobInfo:
        """End a running job of this rig as Ctrl-C would. A run keeps what it has measured.

        start_measurement with `resume` continues it. A job that has ended stays as it is.
        """
        found = jobs.find(self.rig, job)
        meanwhile(context, "waiting for it to end", lambda: jobs.cancel(found))
        return self._info(found)

    def _info(self, job: Job) -> answers.JobInfo:
        state, record = job.state, job.record
        done, total = job.trials()
        folder = job.run_folder
        return answers.JobInfo.model_validate(
            {
                "job": job.id,
                "kind": record.verb,
                "state": state,
                "quick": record.quick,
                "resume": record.resume,
                "started": record.started,
                "ended": job.ended,
                "exit_code": job.exit_code,
                "run": folder.name if folder else None,
                "trials_done": done,
                "trials_total": total,
                "error": job.why_it_ended() if state in ("failed", "lost") else None,
            }
        )

    def list_runs(
        self,
        all_rigs: bool = False,
        kind: Annotated[str, Field(max_length=40)] = "",
        limit: Annotated[int, Field(ge=1, le=200)] = 50,
        offset: Annotated[int, Field(ge=0, le=100_000)] = 0,
    ) -> answers.Runs:
        """List run directories, the newest first: of this rig, or of every rig here.

        `kind` keeps those of one measurement, such as speed. Names are used in read_run and
        compare_runs.
        """
        found, damaged = [], []
        for name, folder in self._runs().items():
            if not all_rigs and "/" in name:
                continue
            try:
                manifest = run.read_manifest(folder)
            except RigError as error:
                damaged.append(f"{name}: {error}")
                continue
            if not kind or manifest["what"] == kind:
                found.append((manifest["started"], name, folder, manifest))
        found.sort(key=lambda entry: entry[:2], reverse=True)
        listed = [_run(*entry[1:]) for entry in found[offset : offset + limit]]
        return answers.Runs(runs=listed, total=len(found), damaged=sorted(damaged)[:MOST_DAMAGED])

    def _runs(self) -> dict[str, Path]:
        """Every run by name: of this rig NAME, of others RIG/NAME. None that is a link to a folder
        elsewhere."""
        found = {}
        for folder in {self.folder, *(path.resolve() for path in rig.all_rigs())}:
            prefix = "" if folder == self.folder else f"{folder.name}/"
            home = folder / "benchmarks" / "runs"
            for manifest in home.glob(f"*/{run.MANIFEST}"):
                if manifest.parent.resolve().parent == home.resolve():
                    found[prefix + manifest.parent.name] = manifest.parent
        return found

    def _find(self, name: str) -> Path:
        folder = self._runs().get(name)
        if folder is None:
            raise RigError(f"there is no run {name!r}; list_runs names those there are")
        return folder

    def read_run(
        self,
        run: Name,
        part: Literal["report", "summary", "manifest"] = "report",
        offset: Annotated[int, Field(ge=0, le=100_000_000)] = 0,
        limit: Annotated[int, Field(ge=1, le=50_000)] = 20_000,
    ) -> answers.Page:
        """Read a run's report (Markdown), its summary (every figure, JSON) or its manifest.

        In pages of `limit` characters; go on from `next_offset`.
        """
        text = _text(self._find(run) / PARTS[part], f"{part} of {run}")
        end = min(len(text), offset + limit)
        return answers.Page(
            run=run,
            part=part,
            text=text[offset:end],
            offset=offset,
            total=len(text),
            next_offset=end if end < len(text) else None,
        )

    def compare_runs(
        self, runs: Annotated[list[Name], Field(min_length=1, max_length=20)]
    ) -> answers.Comparison:
        """Compare finished runs, also of other rigs: figures, intervals, and what is unequal."""
        folders = [self._find(name) for name in runs]
        # Imported here: the libraries behind it are slow to load, and a client waits for tools.
        from common.compare import compare

        found = json.loads(json.dumps(compare.compare(folders)))
        if len(json.dumps(found)) > MOST_COMPARED:
            raise RigError("the comparison is too long for one answer; compare fewer runs")
        return answers.Comparison(runs=list(runs), comparison=found)

    def recommend(self, workload: Workload) -> answers.Recommendation:
        """Say which settings the runs so far speak for: chat, long documents, or many users.

        From the newest finished tune run of that workload; without one, what the newest
        measurement found, which recommends nothing. Changes nothing itself.
        """
        return recommend.recommend(self.rig, workload)


def _run(name: str, folder: Path, manifest: Manifest) -> answers.RunInfo:
    return answers.RunInfo(
        run=name,
        kind=manifest["what"],
        started=manifest["started"],
        ended=manifest["ended"],
        quick=bool((manifest.get("plan") or {}).get("quick")),
        answer=recommend.answer(folder) if manifest["ended"] else None,
    )


def _text(file: Path, what: str) -> str:
    """A file's text: none that is a link, no regular file, or larger than can be meant."""
    if not os.path.lexists(file):
        raise RigError(f"there is no {what} yet: it is unfinished, see list_runs")
    try:
        if file.is_symlink():
            raise OSError("it is a link")
        if file.stat().st_size > MOST_READ:
            raise OSError(f"it is larger than {MOST_READ >> 20} MiB")
        return run.content(file).decode()
    except (OSError, ValueError) as error:
        raise RigError(f"the {what} cannot be read: {error}") from None
