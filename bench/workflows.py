"""Workflows: checking a large graph, what the engine costs beside the sessions of its nodes, and
how it keeps up when replies take time."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
from report import Measure, median

from mainspring import Agent, Runtime, open_runtime
from mainspring.capabilities.providers.scripted import Scripted
from mainspring.config import read_settings
from mainspring.core.envelope import Event
from mainspring.core.events import HookRan, WorkflowNodeEnded
from mainspring.core.sender import Sender
from mainspring.log.writer import Writer
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.workflows.engine import RunRequest, run_workflow, start_run
from mainspring.runtime.workflows.format.workflow_reader import read_workflow
from mainspring.runtime.workflows.run_context import RunLimits
from mainspring.runtime.workflows.run_files import RunFiles
from mainspring.runtime.workflows.session_steps import SessionSteps
from mainspring.runtime.workflows.step_runner import AgentStep, ProgramStep, StepResult
from mainspring.testing import says
from mainspring.wiring.workflow_steps import STEP_PORTS

CHECKED, RUN, SLOW, FLAT = 1000, 200, 100, 10_000
PARALLEL, ROUNDS = 20, 5
REPLY_SECONDS = 1.0
NODES_LIMIT = RunLimits(max_steps=2 * FLAT, parallel=PARALLEL)


def graph(count: int, width: int, kind: str = "prompt") -> str:
    """`count` nodes in rows of `width`; each needs two of the row before."""
    lines = ["name: big", "description: many nodes", "nodes:"]
    for number in range(count):
        row, column = divmod(number, width)
        before = [(row - 1) * width + column, (row - 1) * width + (column + 1) % width]
        needs = sorted({f"n{item}" for item in before}) if row else []
        lines.append(f"  - {{id: n{number}, {kind}: say it, depends_on: [{', '.join(needs)}]}}")
    return "\n".join(lines)


async def measure() -> list[Measure]:
    return [_checking(), await _cost(), await _slow_replies(), await _memory()]


def _checking() -> Measure:
    text = graph(CHECKED, 10)
    before = time.process_time()
    read = read_workflow(text, "big.yaml")
    took = time.process_time() - before
    assert read.workflow is not None, read.error
    return Measure(
        name=f"check a graph of {CHECKED} nodes", value=took, unit="s of CPU", target="<= 0.5"
    )


@asynccontextmanager
async def _runtime(seconds: float) -> AsyncGenerator[Runtime, None]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        settings = replace(
            read_settings(store=str(home / "log.db"), environ={}, folder=home), home=str(home)
        )
        async with open_runtime(settings, options=RunOptions(workspace=home)) as runtime:
            script = Scripted(otherwise=says("said"), latency_seconds=seconds)
            runtime.models.put("bench", script)
            yield runtime


AGENT = Agent(name="bench", model="bench", built_ins=(), memory="off")


async def _run_nodes(runtime: Runtime, text: str) -> None:
    steps = SessionSteps(runtime=runtime, agent=AGENT, ports=STEP_PORTS, worktrees=Path())
    files = RunFiles(main="big", workflows={"big": text})
    sender = Sender(kind="system", id="bench")
    run_id, _ = await start_run(runtime.log, RunRequest(files=files), sender)
    await steps.begin(run_id, None)
    state = await run_workflow(runtime.log, run_id, steps, limits=NODES_LIMIT)
    assert state.status == "completed", state.result


async def _run_sessions(runtime: Runtime, count: int) -> None:
    limiter = anyio.CapacityLimiter(PARALLEL)

    async def one() -> None:
        async with limiter:
            session = await runtime.start(AGENT, "say it")
            await session.run()

    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(one)


async def _cost() -> Measure:
    costs: list[float] = []
    for _ in range(3):
        async with _runtime(0) as runtime:
            begun = time.process_time()
            await _run_sessions(runtime, RUN)
            plain = time.process_time() - begun
            begun = time.process_time()
            await _run_nodes(runtime, graph(RUN, PARALLEL))
            costs.append((time.process_time() - begun - plain) * 1000 / RUN)
    return Measure(
        name="engine, a node beyond its session",
        value=median(costs),
        unit="ms of CPU",
        target="<= 5",
    )


async def _slow_replies() -> Measure:
    ratios: list[float] = []
    for _ in range(ROUNDS):
        async with _runtime(REPLY_SECONDS) as runtime:
            begun = time.monotonic()
            await _run_sessions(runtime, SLOW)
            plain = time.monotonic() - begun
            begun = time.monotonic()
            await _run_nodes(runtime, graph(SLOW, SLOW))
            ratios.append((time.monotonic() - begun) / plain)
    return Measure(
        name=f"{SLOW} nodes with replies of {REPLY_SECONDS:.0f} s, {PARALLEL} at a time",
        value=median(ratios),
        unit="x of plain sessions",
        target="<= 1.25",
    )


@dataclass(slots=True)
class NoSteps:
    """A `StepRunner` without sessions."""

    async def run_agent(self, step: AgentStep) -> StepResult:
        return StepResult(status="completed", output="x" * 200)

    async def run_program(self, step: ProgramStep) -> StepResult:
        return StepResult(status="completed")

    async def open_worktree(self, name: str, workspace: Path | None) -> Path:
        return Path(name)

    async def prepare_folder(
        self, workspace: Path | None, name: str, before: str | None = None
    ) -> Path:
        return Path(name)

    async def wait(self, seconds: float) -> None:
        pass

    async def notify(self, writer: Writer, message: str, kind: str) -> Sequence[HookRan]:
        return ()

    async def changed_files(self, session_id: str) -> bool:
        return False


async def _memory() -> Measure:
    sizes: list[int] = []
    ended = 0

    def note(event: Event) -> None:
        nonlocal ended
        if isinstance(event.payload, WorkflowNodeEnded):
            ended += 1
            if ended in (FLAT // 10, FLAT):
                sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    async with _runtime(0) as runtime:
        files = RunFiles(main="big", workflows={"big": graph(FLAT, 100)})
        sender = Sender(kind="system", id="bench")
        run_id, _ = await start_run(runtime.log, RunRequest(files=files), sender)
        await run_workflow(runtime.log, run_id, NoSteps(), limits=NODES_LIMIT, on_event=note)
    return Measure(
        name=f"memory after {FLAT:,} nodes",
        value=sizes[1] / sizes[0],
        unit=f"x of that after {FLAT // 10:,}",
        target="<= 1.2",
    )
