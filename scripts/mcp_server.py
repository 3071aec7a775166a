"""Serve a rig's tools to an MCP client, over standard input and output. `make mcp` registers it."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations

from common import kinds
from common.errors import RigError
from common.mcp.rig_tools import RigTools
from common.mcp.run_tools import RunTools
from common.mcp.server_tools import ServerTools
from scripts import _cli

INSTRUCTIONS = """\
Serves {model} with llama.cpp, with settings for {card}, and measures whether drafting \
(speculative decoding) pays there. check_host says what is missing. start_server, then ask_model; \
the server and measurements are shared with other sessions and outlive this one. \
start_measurement runs for minutes to hours: follow_job now and then. Speed-ups come with 95% \
intervals: one that holds 1 says nothing. Where an error says make X, that is a command for a \
terminal in {folder}."""


def tools(folder: Path) -> list[Tool]:
    """Every tool of the rig in this folder, with what it does to the world."""
    own, served, runs = RigTools(folder), ServerTools(folder), RunTools(folder)
    reads = ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    adds = reads.model_copy(update={"read_only_hint": False})
    ends = reads.model_copy(update={"read_only_hint": False, "destructive_hint": True})
    asks = reads.model_copy(update={"idempotent_hint": False})
    fetches = adds.model_copy(update={"open_world_hint": True})
    starts = fetches.model_copy(update={"idempotent_hint": False})
    return [
        _tool(own.show_configuration, "Show the configuration and launch line", reads),
        _tool(own.check_host, "Check this host", reads),
        _tool(own.list_files, "List the model files", reads),
        _tool(own.verify_files, "Verify the model files", reads),
        _tool(own.fetch_files, "Fetch the model files", fetches),
        _tool(own.estimate_memory, "Estimate memory", reads),
        _tool(own.sample_card, "Sample the card", reads),
        _tool(served.start_server, "Start the server", fetches),
        _tool(served.stop_server, "Stop the server", ends),
        _tool(served.server_status, "Server status", reads),
        _tool(served.watch_server, "Watch the server", reads),
        _tool(served.read_server_log, "Read the server's log", reads),
        _tool(served.read_metrics, "Read the server's metrics", reads),
        _tool(served.verify_health, "Verify health by a real reply", asks),
        _tool(served.ask_model, "Ask the model", asks),
        _tool(runs.start_measurement, "Start a measurement", starts),
        _tool(runs.list_jobs, "List jobs", reads),
        _tool(runs.follow_job, "Follow a job", reads),
        _tool(runs.cancel_job, "Cancel a job", ends),
        _tool(runs.list_runs, "List runs", reads),
        _tool(runs.read_run, "Read a report or summary", reads),
        _tool(runs.compare_runs, "Compare runs", reads),
        _tool(runs.recommend, "Recommend settings for a workload", reads),
    ]


def description(function: Callable[..., Any]) -> str:
    """The tool's docstring, in which the measurements there are stand by name."""
    of_rig = [kind for kind in kinds.KINDS if kind.of_rig]
    measurements = " ".join(f"{kind.name}: {kind.help}" for kind in of_rig)
    without = " and ".join(kind.name for kind in of_rig if not kind.quick)
    told = (inspect.getdoc(function) or "").replace("{measurements}", measurements)
    return told.replace("{without_quick}", without)


def _tool(function: Callable[..., Any], title: str, annotations: ToolAnnotations) -> Tool:
    """A tool whose RigErrors reach the model as they are, and that refuses unknown arguments."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except RigError as error:
            raise ToolError(str(error)) from None

    made = Tool.from_function(
        call,
        title=title,
        description=description(function),
        annotations=annotations,
        structured_output=True,
    )
    taken = made.fn_metadata.arg_model
    taken.model_config["extra"] = "forbid"
    taken.model_rebuild(force=True)
    made.parameters = taken.model_json_schema(by_alias=True)
    return made


def body() -> None:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    card = (rig.gpu_name or "the CPU").replace("_", " ")
    instructions = INSTRUCTIONS.format(model=rig.model, card=card, folder=rig.folder)
    # The log goes to standard error; standard output belongs to the protocol.
    MCPServer(
        rig.name, instructions=instructions, tools=tools(rig.folder), log_level="WARNING"
    ).run("stdio")


if __name__ == "__main__":
    _cli.main(body)
