"""Arguments that mean harm, and a standard output that holds nothing but the protocol."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from common.engines.llamacpp.build import Engine
from tests.helpers.limits import HANG_S
from tests.mcp.client import SPEED_RUN, Client, Place

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, real_engine: Engine, port_of_module: int
) -> Place:
    return Place(tmp_path_factory.mktemp("mcp"), real_engine, port_of_module)


@pytest.fixture(scope="module")
def shared(place: Place) -> Iterator[Client]:
    with place.session() as found:
        yield found


HOSTILE = [
    ("read_run", {"run": "../../../etc"}, "there is no run"),
    ("read_run", {"run": f"../runs/{SPEED_RUN}"}, "there is no run"),
    ("read_run", {"run": "/etc"}, "there is no run"),
    ("read_run", {"run": f"{SPEED_RUN}/"}, "there is no run"),
    ("read_run", {"run": f"{SPEED_RUN}\n"}, "there is no run"),
    ("read_run", {"run": f"{SPEED_RUN}\0"}, "there is no run"),
    ("read_run", {"run": "*"}, "there is no run"),
    ("read_run", {"run": "--help"}, "there is no run"),
    ("read_run", {"run": ""}, "at least 1 character"),
    ("read_run", {"run": "x" * 100_000}, "at most 200 characters"),
    ("read_run", {"run": SPEED_RUN, "part": "../../tpu.env"}, "Input should be"),
    ("read_run", {"run": SPEED_RUN, "part": "samples.jsonl"}, "Input should be"),
    ("read_run", {"run": SPEED_RUN, "offset": -1}, "greater than or equal to 0"),
    ("read_run", {"run": SPEED_RUN, "limit": 10**30}, "less than or equal to"),
    ("read_run", {"run": ["a"]}, "valid string"),
    ("read_run", {"run": {"$ref": "/etc/passwd"}}, "valid string"),
    ("read_run", {"run": SPEED_RUN, "path": "/etc/passwd"}, "not permitted"),
    ("read_run", {}, "Field required"),
    ("compare_runs", {"runs": []}, "at least 1 item"),
    ("compare_runs", {"runs": [SPEED_RUN] * 21}, "at most 20 items"),
    ("compare_runs", {"runs": ["-m", "/etc/passwd"]}, "there is no run"),
    ("compare_runs", {"runs": "../.."}, "valid list"),
    ("start_measurement", {"kind": "--help"}, "Input should be"),
    ("start_measurement", {"kind": "serve"}, "Input should be"),
    ("start_measurement", {"kind": "../common/run"}, "Input should be"),
    ("start_measurement", {"kind": "speed; touch /tmp/x"}, "Input should be"),
    ("start_measurement", {"kind": "speed", "quick": "perhaps"}, "valid boolean"),
    ("start_measurement", {"kind": "tune", "workload": "APPLY=1"}, "Input should be"),
    ("start_measurement", {"kind": "speed", "out": "/etc"}, "not permitted"),
    ("follow_job", {"job": "../../serving"}, "has no job"),
    ("follow_job", {"job": "1", "wait_s": 10**9}, "less than or equal to 600"),
    ("cancel_job", {"job": "."}, "has no job"),
    ("cancel_job", {"job": "1"}, "has no job"),
    ("cancel_job", {"job": 1}, "valid string"),
    ("ask_model", {"prompt": "x" * 200_000}, "at most 100000 characters"),
    ("ask_model", {"prompt": "a", "max_tokens": 10**9}, "less than or equal to 4096"),
    ("ask_model", {"prompt": "a", "max_tokens": 0}, "greater than or equal to 1"),
    ("ask_model", {"prompt": "a", "max_tokens": 1.5}, "valid integer"),
    ("ask_model", {"prompt": "a", "temperature": -1}, "greater than or equal to 0"),
    ("ask_model", {"prompt": None}, "valid string"),
    ("ask_model", {"prompt": ["a"]}, "valid string"),
    ("ask_model", {"prompt": "a", "url": "http://127.0.0.1:1"}, "not permitted"),
    ("fetch_files", {"which": "/etc/passwd"}, "Input should be"),
    ("fetch_files", {"which": "model", "MODEL_HF": "evil/repo"}, "not permitted"),
    ("estimate_memory", {"changes": {"MODEL": "/etc/passwd"}}, "Input should be"),
    ("estimate_memory", {"changes": {"CTX_SIZE": "1; ls"}}, "shell character"),
    ("estimate_memory", {"changes": {"CTX_SIZE": "1\n2"}}, "shell character"),
    ("estimate_memory", {"changes": {"CTX_SIZE": "-m"}}, "expected a whole number"),
    ("estimate_memory", {"changes": {"CTX_SIZE": "9" * 40}}, "at most 32 characters"),
    ("estimate_memory", {"changes": {"CTX_SIZE": "99999999999"}}, "from 256 to 10000000"),
    ("read_server_log", {"of": "/etc/passwd"}, "Input should be"),
    ("read_server_log", {"lines": 10**9}, "less than or equal to 500"),
    ("watch_server", {"seconds": 10**9}, "less than or equal to 120"),
    ("start_server", {"wait_s": -1}, "greater than or equal to 0"),
    ("start_server", {"PORT": "80"}, "not permitted"),
    ("recommend", {"workload": "-m /etc/passwd"}, "Input should be"),
    ("list_runs", {"limit": 0}, "greater than or equal to 1"),
    ("no_such_tool", {}, "no_such_tool"),
]


@pytest.mark.parametrize(("tool", "arguments", "text"), HOSTILE)
def test_hostile_arguments(shared: Client, tool: str, arguments: dict[str, Any], text: str) -> None:
    try:
        said = shared.refused(tool, **arguments)
    except MCPError as error:  # the protocol's own way to refuse
        said = str(error)
    assert text in said
    assert "Traceback" not in said
    assert len(said) < 3000


def test_standard_output_holds_the_protocol_only(place: Place) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    sent = f"{json.dumps(hello)}\nnot JSON\n" + '{"jsonrpc": "2.0", "id": 2, "method": "none"}\n'
    done = subprocess.run(
        place.command,
        input=sent,
        capture_output=True,
        text=True,
        env={**os.environ, **place.environment},
        timeout=HANG_S,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["result"]["serverInfo"]["name"] == place.rig.name
    assert all(line["jsonrpc"] == "2.0" for line in lines)
    assert done.returncode == 0, done.stderr


def test_a_rig_that_is_none_is_an_error_in_one_line(place: Place) -> None:
    done = subprocess.run(
        [*place.command[:2], "../no-such-rig"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **place.environment},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "is not a rig" in done.stderr
