"""What isolation costs: a program in a live sandbox against a bare spawn of it; a new sandbox."""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from report import Measure, as_table, median, percentile

from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.backends.bwrap import Bubblewrap, find_bubblewrap
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.ports import ExecRequest

ROUNDS, STARTS = 300, 20
COMMANDS = {"true": ("/usr/bin/true",), "bash -c": ("/bin/bash", "-c", ":")}


async def measure() -> list[Measure]:
    path = find_bubblewrap()
    if path is None:
        return []
    backend = Bubblewrap(path=path)
    with TemporaryDirectory() as folder:
        found = [await _execs(backend, Path(folder), name) for name in COMMANDS]
        return [*found, await _starts(backend, Path(folder))]


def _sandbox(backend: Bubblewrap, folder: Path, name: str) -> KeeperSandbox:
    workspace = folder / f"{name}-workspace"
    workspace.mkdir()
    return KeeperSandbox(
        SandboxSpec(session_id=name, workspace=workspace, state=folder / f"{name}-state"), backend
    )


async def _execs(backend: Bubblewrap, folder: Path, name: str) -> Measure:
    argv = COMMANDS[name]
    ours: list[float] = []
    bare: list[float] = []
    async with _sandbox(backend, folder, name.replace(" ", "")) as sandbox:
        await sandbox.run(ExecRequest(key="warm", argv=argv))
        for number in range(ROUNDS):
            bare.append(_bare(argv))
            begun = time.perf_counter()
            await sandbox.run(ExecRequest(key=str(number), argv=argv))
            ours.append(time.perf_counter() - begun)
    over = (median(ours) - median(bare)) * 1000
    detail = (
        f"p50 {median(ours) * 1000:.2f} / {median(bare) * 1000:.2f} ms,"
        f" p99 {percentile(ours, 99) * 1000:.1f} / {percentile(bare, 99) * 1000:.1f} ms"
    )
    return Measure(
        name=f"`{name}` in a sandbox - bare spawn",
        value=over,
        unit="ms",
        target="<= 5",
        detail=detail,
    )


def _bare(argv: tuple[str, ...]) -> float:
    begun = time.perf_counter()
    os.waitpid(os.posix_spawn(argv[0], argv, {}), 0)
    return time.perf_counter() - begun


async def _starts(backend: Bubblewrap, folder: Path) -> Measure:
    seconds: list[float] = []
    for number in range(STARTS):
        begun = time.perf_counter()
        async with _sandbox(backend, folder, f"new{number}") as sandbox:
            await sandbox.run(ExecRequest(key="first", argv=("/usr/bin/true",)))
            seconds.append(time.perf_counter() - begun)
    return Measure(
        name="new sandbox, with its first program",
        value=median(seconds) * 1000,
        unit="ms",
        target="<= 60",
        detail=f"p90 {percentile(seconds, 90) * 1000:.0f} ms",
    )


if __name__ == "__main__":
    print(as_table(anyio.run(measure)))
