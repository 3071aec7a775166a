"""Every MCP tool, driven by the SDK's client over stdio against the known-answer rig."""

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp.shared.exceptions import MCPError

from common.engines.llamacpp.build import Engine
from common.known import chain as pair
from tests.helpers.runs import TUNE, change_summary, copied
from tests.mcp.client import SPEED_RUN, Client, Place, text

pytestmark = pytest.mark.engine
PROMPT = "Say something."
RAN: set[str] = set()
"""this file's tests that ran in this process"""


@pytest.fixture(autouse=True)
def noted(request: pytest.FixtureRequest) -> None:
    RAN.add(request.function.__name__)


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, real_engine: Engine, port_of_module: int
) -> Place:
    return Place(tmp_path_factory.mktemp("mcp"), real_engine, port_of_module)


@pytest.fixture(scope="module")
def shared(place: Place) -> Iterator[Client]:
    """One session for the whole file, with the model files at hand."""
    with place.session() as found:
        found.call("fetch_files")
        yield found
        found.call("stop_server")


@pytest.fixture
def unmeasured(shared: Client) -> Client:
    """The session, with nothing measured."""
    for job in shared.call("list_jobs")["jobs"]:
        if job["kind"] != "serve":
            shared.call("cancel_job", job=job["job"])
    return shared


@pytest.fixture
def idle(unmeasured: Client) -> Client:
    """The session, with nothing served and nothing measured."""
    unmeasured.call("stop_server")
    return unmeasured


@pytest.fixture
def served(unmeasured: Client) -> Client:
    assert unmeasured.call("start_server")["ready"] is True
    return unmeasured


def test_every_tool_says_what_it_is(shared: Client, place: Place) -> None:
    assert shared.name == place.rig.name
    assert len(shared.tools) == 23
    for tool in shared.tools.values():
        assert tool.title, tool.name
        assert tool.description, tool.name
        assert tool.annotations is not None, tool.name
        hints = tool.annotations.model_dump(exclude={"title"})
        assert all(isinstance(hint, bool) for hint in hints.values()), tool.name
        assert len(hints) == 4
        assert tool.output_schema is not None, tool.name
        assert tool.output_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
    ends = {name for name, tool in shared.tools.items() if destructive(tool)}
    assert ends == {"stop_server", "cancel_job"}


def destructive(tool: Any) -> bool:
    return bool(tool.annotations.destructive_hint)


def test_configuration(shared: Client, place: Place) -> None:
    found = shared.call("show_configuration")
    assert found["command"][0] == place.environment["LLAMA_SERVER"]
    assert ["--port", str(place.port)] == found["command"][5:7]
    assert found["when_measuring"] == ["-np", "1", "-fit", "off", "-cram", "0"]
    assert found["settings"]["SPEC_TYPE"] == "draft-mtp"
    assert "PORT" in found["overridden"]
    file = place.rig / "tpu.env"
    kept = file.read_text()
    file.write_text(kept.replace("CTX_SIZE=8192", "CTX_SIZE=4096"))
    assert shared.call("show_configuration")["settings"]["CTX_SIZE"] == "4096"
    file.write_text(f"{kept}CTX_SISE=1\n")
    try:
        assert "did you mean CTX_SIZE?" in shared.refused("show_configuration")
    finally:
        file.write_text(kept)


def test_host(idle: Client) -> None:
    found = idle.call("check_host")
    assert found["can_run"] is True
    assert {"python", "engine", "model", "drafter", "card", "memory", "port"} <= {
        check["name"] for check in found["checks"]
    }


def test_files(idle: Client, place: Place) -> None:
    models = Path(place.environment["MODELS_DIR"])
    shutil.rmtree(models)
    here = [file["here"] for file in idle.call("list_files")["files"]]
    assert here == [False, False]
    assert "bring it with fetch_files" in idle.refused("estimate_memory")
    found = idle.call("fetch_files", which="drafter")
    assert idle.progress[0][2] == "making the known-answer pair"
    assert found["messages"] == ["making the known-answer pair"]
    states = {file["role"]: file for file in idle.call("verify_files")["files"]}
    assert states["drafter"]["state"] == "made here, nothing to pin"
    assert len(states["drafter"]["sha256"]) == 64
    assert states["drafter"]["bytes"] == (models / states["drafter"]["name"]).stat().st_size
    (models / pair.TARGET_NAME).write_bytes(b"<html>")
    states = {file["role"]: file for file in idle.call("verify_files")["files"]}
    assert states["model"]["state"].startswith("WRONG: ")
    assert "is not a GGUF file" in idle.refused("fetch_files")
    (models / pair.TARGET_NAME).unlink()
    assert all(file["here"] for file in idle.call("fetch_files")["files"])


def test_memory(shared: Client) -> None:
    small = shared.call("estimate_memory")
    assert sum(small["parts_mib"].values()) == pytest.approx(small["need_mib"])
    assert small["parts_mib"]["drafter"] > 0
    assert small["fits"] is True
    large = shared.call("estimate_memory", changes={"CTX_SIZE": "1000000"})
    assert large["parts_mib"]["KV cache"] > small["parts_mib"]["KV cache"]


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this host has an NVIDIA card")
def test_without_a_card_nothing_is_made_up(shared: Client) -> None:
    found = shared.call("sample_card")
    assert found["cards"] == []
    assert "no NVIDIA card can be used on this host" in found["note"]


def test_serving(idle: Client) -> None:
    assert idle.call("server_status")["state"] == "stopped"
    assert "start it with start_server" in idle.refused("ask_model", prompt=PROMPT)
    started = idle.call("start_server")
    assert (started["already"], started["ready"]) == (False, True)
    assert idle.progress, "no progress was told"
    again = idle.call("start_server")
    assert (again["already"], again["server"]["pid"]) == (True, started["server"]["pid"])
    status = idle.call("server_status")
    assert status["state"] == "ready"
    assert status["job"] == idle.call("list_jobs")["jobs"][0]["job"]
    assert status["context"] > 0
    assert idle.call("verify_health")["healthy"] is True
    assert any("listening" in line for line in idle.call("read_server_log", lines=500)["lines"])
    assert any("ready after" in x for x in idle.call("read_server_log", of="start")["lines"])
    stopped = idle.call("stop_server")
    assert stopped["stopped"] is True
    assert not psutil.pid_exists(status["pid"])
    assert idle.call("stop_server")["stopped"] is False
    job = next(job for job in idle.call("list_jobs")["jobs"] if job["job"] == status["job"])
    assert job["state"] == "finished"


def test_asking(served: Client) -> None:
    chain = pair.make_chain()
    before = served.call("read_metrics")
    reply = served.call("ask_model", prompt=PROMPT, max_tokens=20)
    assert reply["text"] == chain.text(chain.reply(len(PROMPT), 20))
    assert reply["generated_tokens"] == 20
    assert reply["finish_reason"] == "length"
    assert reply["tokens_per_second"] > 0
    assert reply["kept"] == reply["accepted"] / reply["drafted"]
    after = served.call("read_metrics")
    assert after["generated_tokens"] - before["generated_tokens"] == 20
    assert after["drafted"] - before["drafted"] == reply["drafted"]
    # A prompt that is JSON stays text; a system message is taken.
    assert served.call("ask_model", prompt='{"a": 1}', max_tokens=1, system="[1, 2]")["text"]
    assert "the model gave no reply" in served.refused("ask_model", prompt="word " * 20_000)


def test_watching(served: Client) -> None:
    watching = served.begin("watch_server", {"seconds": 2})
    told = served.progress
    served.call("ask_model", prompt=PROMPT, max_tokens=64)
    seen = served.end("watch_server", watching)
    assert seen["generated_tokens"] >= 64
    assert seen["kept"] is not None
    assert [total for _done, total, _text in told] == [2] * len(told)
    assert len(told) >= 2


def test_a_request_that_is_given_up_ends(served: Client) -> None:
    with pytest.raises(MCPError, match=r"[Tt]imed out"):
        served.begin("watch_server", {"seconds": 100}, limit_s=0.5).result()
    assert served.call("server_status")["state"] == "ready"


def test_the_next_session_finds_the_server(place: Place, idle: Client) -> None:
    with place.session() as first:
        pid = first.call("start_server")["server"]["pid"]
    assert psutil.pid_exists(pid)
    status = idle.call("server_status")
    assert (status["state"], status["pid"]) == ("ready", pid)
    assert idle.call("start_server")["already"] is True
    assert idle.call("stop_server")["stopped"] is True
    assert not psutil.pid_exists(pid)


def test_a_crash_is_said_and_survived(served: Client) -> None:
    pid = served.call("server_status")["pid"]
    os.kill(pid, signal.SIGKILL)
    status = until(served, lambda status: status["state"] == "stopped")
    assert "llama-server has ended by itself" in status["last_end"]
    assert "start it with start_server" in served.refused("verify_health")
    started = served.call("start_server")
    assert (started["already"], started["ready"]) == (False, True)
    assert started["server"]["pid"] != pid


def until(session: Client, fits: Any) -> dict[str, Any]:
    for _ in range(200):
        status = session.call("server_status")
        if fits(status):
            return status
        time.sleep(0.05)
    pytest.fail(f"it stays so: {status}")


def test_two_clients_at_once_start_one_server(place: Place, idle: Client) -> None:
    with place.session() as other:
        calls = [session.begin("start_server", {}) for session in (idle, other)]
        started = [idle.end("start_server", call) for call in calls]
        idle.call("stop_server")
        speed = {"kind": "speed", "quick": True}
        calls = [session.begin("start_measurement", speed) for session in (idle, other)]
        results = [call.result() for call in calls]
    assert sorted(found["already"] for found in started) == [False, True]
    assert [found["ready"] for found in started] == [True, True]
    assert len({found["server"]["pid"] for found in started}) == 1
    assert sorted(result.is_error for result in results) == [False, True]
    assert "is being measured" in "".join(text(result) for result in results)


def test_a_server_that_is_starting_can_be_stopped(idle: Client) -> None:
    started = idle.call("start_server", wait_s=0)
    assert (started["ready"], started["server"]["state"]) == (False, "starting")
    assert idle.call("stop_server")["stopped"] is True
    assert idle.call("server_status")["state"] == "stopped"


def test_a_server_that_cannot_start_says_why(idle: Client, place: Place) -> None:
    model = Path(place.environment["MODELS_DIR"]) / pair.TARGET_NAME
    kept = model.read_bytes()
    model.write_bytes(b"GGUF" + bytes(100))
    try:
        said = idle.refused("start_server")
    finally:
        model.write_bytes(kept)
    assert "the server ended while it started: error: " in said
    assert idle.call("server_status")["state"] == "stopped"


def test_a_port_that_is_taken(idle: Client, place: Place) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", place.port))
        other.listen()
        assert f"port {place.port}" in idle.refused("start_server")
        assert f"port {place.port}" in idle.refused("start_measurement", kind="speed")


def test_server_and_measurement_exclude_each_other(idle: Client) -> None:
    idle.call("start_server")
    assert "stop it first (stop_server)" in idle.refused("start_measurement", kind="speed")
    idle.call("stop_server")
    job = idle.call("start_measurement", kind="speed", quick=True)
    assert f"(job {job['job']})" in idle.refused("start_server")
    assert f"(job {job['job']})" in idle.refused("start_measurement", kind="sweep")


def test_a_measurement_from_start_to_report(idle: Client) -> None:
    before = idle.call("list_runs")["total"]
    job = idle.call("start_measurement", kind="speed", quick=True)
    assert job["state"] == "running"
    followed = idle.call("follow_job", job=job["job"], wait_s=90)
    assert idle.progress, "no progress was told"
    assert followed["job"]["state"] == "finished", followed["log"]
    assert followed["job"]["exit_code"] == 0
    assert followed["job"]["trials_done"] == followed["job"]["trials_total"] == 9
    assert followed["log"][-1].startswith("report: ")
    runs = idle.call("list_runs", limit=1)
    assert (runs["total"], runs["runs"][0]["run"]) == (before + 1, followed["job"]["run"])
    assert runs["runs"][0]["answer"] == followed["answer"]
    name = runs["runs"][0]["run"]
    report = idle.call("read_run", run=name)
    assert report["text"].startswith("# Speed: ")
    assert report["next_offset"] is None
    summary = json.loads(idle.call("read_run", run=name, part="summary", limit=50_000)["text"])
    assert all(row["equal"] for row in summary["known_answer"])


def test_cancelling_keeps_what_was_measured(place: Place, idle: Client) -> None:
    """From a client that ignores Ctrl-C, as one started in the background does."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with place.session() as deaf:
            job = deaf.call("start_measurement", kind="speed")["job"]
    finally:
        signal.signal(signal.SIGINT, before)
    for _ in range(600):
        if idle.call("follow_job", job=job)["job"]["trials_done"] > 0:
            break
        time.sleep(0.05)
    cancelled = idle.call("cancel_job", job=job)
    assert cancelled["state"] == "cancelled"
    assert cancelled["exit_code"] == 130
    assert cancelled["trials_done"] < cancelled["trials_total"]
    log = idle.call("follow_job", job=job)["log"]
    assert any(line.endswith("RESUME=1 continues it") for line in log), log
    assert idle.call("cancel_job", job=job)["state"] == "cancelled"
    resumed = idle.call("start_measurement", kind="speed", resume=True)["job"]
    found = idle.call("follow_job", job=resumed, wait_s=1)
    assert found["job"]["run"] in (None, cancelled["run"])
    for _ in range(600):
        found = idle.call("follow_job", job=resumed)
        if found["job"]["trials_done"] > cancelled["trials_done"]:
            break
        time.sleep(0.05)
    assert found["job"]["run"] == cancelled["run"]
    assert idle.call("cancel_job", job=resumed)["state"] in ("cancelled", "finished")
    assert no_server_left(place)


def no_server_left(place: Place) -> bool:
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return not any(
        place.environment["LLAMA_SERVER"] in line and str(place.port) in line for line in lines
    )


def test_a_job_that_is_killed_is_lost(place: Place, idle: Client) -> None:
    job = idle.call("start_measurement", kind="speed")["job"]
    record = Path(place.environment["GEMMA_RIGS_CACHE"], "jobs", place.rig.name, job, "job.json")
    os.killpg(json.loads(record.read_text())["pid"], signal.SIGKILL)
    for _ in range(200):
        found = idle.call("follow_job", job=job)["job"]
        if found["state"] != "running":
            break
        time.sleep(0.05)
    assert (found["state"], found["exit_code"]) == ("lost", None)
    assert found["error"]


def test_a_job_that_fails_says_why(idle: Client) -> None:
    job = idle.call("start_measurement", kind="cost", resume=True)["job"]
    found = idle.call("follow_job", job=job, wait_s=60)["job"]
    assert (found["state"], found["exit_code"]) == ("failed", 1)
    assert "has no unfinished cost run" in found["error"]


def test_runs_in_pages(shared: Client, place: Place) -> None:
    file = place.rig / "benchmarks" / "runs" / SPEED_RUN / "summary.json"
    whole, offset = "", 0
    while True:
        page = shared.call("read_run", run=SPEED_RUN, part="summary", offset=offset, limit=3000)
        assert len(page["text"]) <= 3000
        whole += page["text"]
        if page["next_offset"] is None:
            break
        offset = page["next_offset"]
    assert whole == file.read_text()
    assert page["total"] == len(whole)
    assert shared.call("read_run", run=SPEED_RUN, offset=10_000_000)["text"] == ""
    every = shared.call("list_runs", all_rigs=True, kind="cost")["runs"]
    assert [run["run"].split("/")[0] for run in every] == ["local-llamacpp-cpu-270m-q4_k_m"]
    assert shared.call("read_run", run=every[0]["run"], part="manifest")["total"] > 100
    manifest = place.rig / "benchmarks" / "runs" / "2026-01-01-speed-cpu" / "manifest.json"
    manifest.parent.mkdir()
    told = json.loads((file.parent / "manifest.json").read_text())
    manifest.write_text(json.dumps({**told, "ended": None, "started": "2026-01-01T00:00:00"}))
    assert "unfinished" in shared.refused("read_run", run=manifest.parent.name)


def test_comparing(shared: Client) -> None:
    other = "local-llamacpp-cpu-270m-q4_k_m/2026-12-01-speed-cpu"
    found = shared.call("compare_runs", runs=[SPEED_RUN, other])
    assert found["runs"] == [SPEED_RUN, other]
    assert found["comparison"]


def tuned(folder: Path, head: dict[str, Any]) -> None:
    """A tune run that recommends to do without a drafter."""
    copied(TUNE, folder, lambda manifest: manifest.update(head))
    change_summary(folder, lambda made: made["recommendation"].update(changes={"SPEC_TYPE": ""}))


def test_recommending(shared: Client, place: Place) -> None:
    told = shared.call("recommend", workload="chat")
    assert told["changes"] is None
    assert {finding["verdict"] for finding in told["findings"]} <= {"pays", "even", "loses"}
    assert "start_measurement with tune" in told["reason"]
    assert shared.call("recommend", workload="documents")["run"] is None
    runs = place.rig / "benchmarks" / "runs"
    for name, ended in (("2026-11-28-tune-cpu", "2026-11-28"), ("2026-11-29-tune-cpu", None)):
        tuned(runs / name, {"started": name[:10], "ended": ended, "rig": place.rig.name})
    told = shared.call("recommend", workload="chat")
    assert told["run"] == "2026-11-28-tune-cpu"
    assert told["changes"] == {"SPEC_TYPE": ""}
    assert shared.call("recommend", workload="documents")["run"] is None


@pytest.mark.last
def test_every_tool_was_driven(shared: Client) -> None:
    """All the tools there are gave an answer in the tests before."""
    if not {name for name in globals() if name.startswith("test_")} <= RAN:
        pytest.skip("only some of this file's tests were run")
    assert shared.answered == set(shared.tools)
