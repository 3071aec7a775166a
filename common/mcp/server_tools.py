"""MCP tools: the rig's server, from starting it to asking it."""

import threading
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from pydantic import Field

from common.engines.llamacpp import counters, serve
from common.errors import RigError
from common.mcp import answers, jobs
from common.mcp.jobs import Job
from common.mcp.notices import meanwhile, tell
from common.mcp.toolbox import Toolbox
from common.serving import client, record
from common.serving.record import Serving

STEP_S = 0.2
ASK_S = 600.0
HEALTH_PROMPT = "Count from one to ten in words."
HEALTH_TOKENS = 32

Seconds = Annotated[int, Field(ge=0, le=600)]
Prompt = Annotated[str, Field(min_length=1, max_length=100_000)]


class ServerTools(Toolbox):
    """Tools on one rig's server. It lives on when the MCP session ends."""

    def start_server(self, context: Context, wait_s: Seconds = 120) -> answers.ServerStart:
        """Start llama-server for this rig in the background and wait until it is ready.

        Builds the engine (minutes, once) and fetches files first if need be; then `ready` may be
        false when `wait_s` is over, and server_status tells when it is. A rig that is served
        already stays as it is. Refused while something is being measured.
        """
        job, already = jobs.serve(self.rig)
        begin = time.monotonic()
        while time.monotonic() - begin < wait_s:
            if self._ready():
                return self._started(already, ready=True)
            if record.find(self.rig) is None and (job is None or job.state != "running"):
                raise RigError(
                    "the server ended while it started: "
                    + (job.why_it_ended() if job else "its terminal tells why")
                )
            said = job.log_lines(1) if job else []
            said_last = said[0] if said else "starting"
            tell(context, time.monotonic() - begin, wait_s, said_last)
            time.sleep(STEP_S)
        return self._started(already, ready=self._ready())

    def _ready(self) -> bool:
        found = record.find(self.rig)
        return found is not None and found.ready

    def _started(self, already: bool, ready: bool) -> answers.ServerStart:
        return answers.ServerStart(already=already, ready=ready, server=self.server_status())

    def stop_server(self, context: Context) -> answers.ServerStop:
        """Stop this rig's server, wherever it was started; also one that is still starting.

        Only a process that this project recorded is stopped. Replies under way are lost.
        """
        begin = time.monotonic()
        found, job = record.find(self.rig), self._job()
        if found is None and job is None:
            return answers.ServerStop(stopped=False, took_s=0)
        meanwhile(context, "stopping the server", lambda: self._stop(found, job))
        return answers.ServerStop(stopped=True, took_s=time.monotonic() - begin)

    def _stop(self, found: Serving | None, job: Job | None) -> None:
        if found is not None and (found.ready or job is None):
            record.stop(found)
        if job is None:
            return
        # Its script notes the end by itself; one that is still starting has to be told.
        limit = time.monotonic() + (5 if found and found.ready else 0)
        while job.state == "running" and time.monotonic() < limit:
            time.sleep(0.05)
        jobs.cancel(job)

    def _job(self) -> Job | None:
        """The background job that serves this rig now."""
        for job in jobs.of_rig(self.rig):
            if job.record.verb == jobs.SERVE and job.state == "running":
                return job
        return None

    def server_status(self) -> answers.ServerStatus:
        """Say whether this rig is being served, by which process, and how the last one ended."""
        found, job = record.find(self.rig), self._job()
        if found is None or not found.ready:
            return answers.ServerStatus(
                state="starting" if job or found else "stopped",
                address=f"{self.rig.url}/v1",
                pid=None,
                served_s=None,
                job=job.id if job else None,
                context=None,
                slots=None,
                last_end=None if job or found else self._last_end(),
            )
        slots, context = serve.slots(found.url)
        return answers.ServerStatus(
            state="ready" if serve.healthy(found.url) else "silent",
            address=f"{found.url}/v1",
            pid=found.pid,
            served_s=found.served_s,
            job=job.id if job else None,
            context=context,
            slots=slots,
            last_end=None,
        )

    def _last_end(self) -> str | None:
        for job in jobs.of_rig(self.rig):
            if job.record.verb == jobs.SERVE:
                return job.why_it_ended() if job.state in ("failed", "lost") else None
        return None

    def watch_server(
        self, context: Context, seconds: Annotated[int, Field(ge=1, le=120)] = 10
    ) -> answers.Watched:
        """Watch a running server for some seconds: tokens per second of all requests, and kept."""
        found = self._served()
        before, begin = counters.read(found.url), time.monotonic()
        now = before
        while (passed := time.monotonic() - begin) < seconds:
            time.sleep(min(1.0, seconds - passed))
            now = counters.read(found.url)
            made = (now - before).predicted_tokens
            gone = min(time.monotonic() - begin, seconds)
            tell(context, gone, seconds, f"{made} tokens generated")
        seen, passed = now - before, time.monotonic() - begin
        return answers.Watched(
            seconds=passed,
            generated_tokens=seen.predicted_tokens,
            tokens_per_second=seen.predicted_tokens / passed,
            drafted=seen.drafted,
            kept=seen.accepted / seen.drafted if seen.drafted else None,
        )

    def read_server_log(
        self,
        of: Literal["llama-server", "start"] = "llama-server",
        lines: Annotated[int, Field(ge=1, le=500)] = 60,
    ) -> answers.LogLines:
        """Read the last lines of the log of llama-server, or of what started it.

        It is that of the running server, or of the last one.
        """
        file: Path | None = record.log_file(self.rig)
        if of == "start":
            served = [job for job in jobs.of_rig(self.rig) if job.record.verb == jobs.SERVE]
            file = served[0].folder / jobs.LOG if served else None
        if file is None or not file.is_file():
            raise RigError(f"{self.rig.name} has no such log yet; it comes with start_server")
        # One line may be a whole prompt.
        return answers.LogLines(
            file=str(file), lines=[line[:2000] for line in jobs.tail(file, lines)]
        )

    def read_metrics(self) -> answers.Metrics:
        """Read the running server's counters since it started: tokens, drafts, kept."""
        totals = counters.read(self._served().url)
        return answers.Metrics(
            drafts=totals.drafts,
            drafted=totals.drafted,
            accepted=totals.accepted,
            accepted_per_position=list(totals.accepted_per_pos),
            kept=totals.accepted / totals.drafted if totals.drafted else None,
            prompt_tokens=totals.prompt_tokens,
            generated_tokens=totals.predicted_tokens,
        )

    def verify_health(self, context: Context) -> answers.Health:
        """Ask the running server a short question and check the reply: text, timings, drafting."""
        found = self._served()
        body = client.chat(HEALTH_PROMPT, HEALTH_TOKENS, temperature=0, seed=1)
        reply = _asked(context, "waiting for a reply", found, body, 120)
        problems = []
        if reply.error:
            problems.append(f"no reply: {reply.error}")
        elif not (reply.content.strip() or reply.reasoning.strip()):
            problems.append("the reply holds no text")
        if not reply.error and self.rig.needs_drafter and self.rig.drafts and not reply.draft_n:
            problems.append(f"SPEC_TYPE={self.rig.spec_type}, but nothing was drafted")
        told = None if reply.error else _reply(reply)
        return answers.Health(healthy=not problems, problems=problems, reply=told)

    def ask_model(
        self,
        context: Context,
        prompt: Prompt,
        max_tokens: Annotated[int, Field(ge=1, le=4096)] = 256,
        temperature: Annotated[float, Field(ge=0, le=2)] = 0.0,
        system: Annotated[str, Field(max_length=20_000)] = "",
    ) -> answers.Reply:
        """Send one chat message to the running server; gives the text, its speed and what was kept.

        Temperature 0 is greedy. Nothing of an earlier call is remembered.
        """
        found = self._served()
        body = client.chat(prompt, max_tokens, temperature=temperature)
        if system:
            body["messages"].insert(0, {"role": "system", "content": system})
        reply = _asked(context, "the model is writing", found, body, ASK_S)
        if reply.error:
            raise RigError(f"the model gave no reply: {reply.error}; see server_status")
        return _reply(reply)

    def _served(self) -> Serving:
        found = record.find(self.rig)
        if found is None or not found.ready:
            raise RigError(f"{self.rig.name} is not being served; start it with start_server")
        return found


def _asked(
    context: Context, message: str, found: Serving, body: dict[str, Any], limit_s: float
) -> client.Reply:
    """The reply to one request, which ends when the client cancels its own."""
    stop = threading.Event()
    return meanwhile(
        context, message, lambda: client.ask(found.url, [body], limit_s, stop)[0], stop
    )


def _reply(reply: client.Reply) -> answers.Reply:
    assert reply.predicted_n is not None
    assert reply.predicted_per_second is not None
    kept = None
    if reply.draft_n:
        kept = (reply.draft_n_accepted or 0) / reply.draft_n
    return answers.Reply(
        text=reply.content,
        reasoning=reply.reasoning or None,
        finish_reason=reply.finish_reason,
        prompt_tokens=reply.prompt_n,
        generated_tokens=reply.predicted_n,
        tokens_per_second=reply.predicted_per_second,
        first_text_ms=reply.ttft_ms,
        drafted=reply.draft_n,
        accepted=reply.draft_n_accepted,
        kept=kept,
    )
