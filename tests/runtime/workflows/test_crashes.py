"""Runs that are cut off at every write of their log, and continued by another engine: the same end,
and each step once."""

import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.conftest import opened
from tests.runtime.workflows.fake_steps import FakeSteps, answer, files_of, says, start, statuses

from mainspring.log.postgres import open_postgres
from mainspring.log.session_log import SessionLog
from mainspring.runtime.workflows.engine import read_run, run_workflow
from mainspring.runtime.workflows.run_state import RunState
from mainspring.runtime.workflows.step_runner import AgentStep, ProgramStep, StepResult

PARENT = """\
name: parent
description: a loop, a group, a fan-out, a gate with rework, a retry, a worktree, other workflows
interactive: true
nodes:
  - {id: list, bash: 'true', retry: {max_attempts: 2, delay_ms: 1000, on_error: all}}
  - {id: each, workflow: child, fan_out: {items: $list.output, as: topic}, depends_on: [list]}
  - {id: apart, workflow: child, with: {topic: x}, isolation: worktree, depends_on: [list]}
  - {id: part, include: child, with: {topic: y}, depends_on: [list]}
  - {id: work, loop: {prompt: p, until: DONE, max_iterations: 3}, depends_on: [list]}
  - id: group
    depends_on: [list]
    loop_group:
      until_bash: check
      max_iterations: 3
      nodes: [{id: step, prompt: p}, {id: test, bash: t, depends_on: [step]}]
  - {id: verify, bash: v, depends_on: [each, apart, part, work, group]}
  - id: gate
    approval: {message: ok?, on_reject: {prompt: fix}}
    depends_on: [verify]
  - {id: end, prompt: $verify.output, depends_on: [gate]}
"""
CHILD = """\
name: child
description: d
inputs: {topic: {required: true}}
nodes:
  - {id: look, prompt: $INPUTS.topic}
"""


class Crash(Exception):
    """The process dies: no code of the engine handles it."""


class Effects(FakeSteps):
    """Sessions survive a crash: a step that is run again under its id continues, and has its effect
    once."""

    done: dict[str, StepResult]
    effects: Counter[str]

    def once(self, session_id: str, path: str, result: StepResult) -> StepResult:
        if session_id not in self.done:
            self.done[session_id] = result
            self.effects[path] += 1
        return self.done[session_id]

    async def run_agent(self, step: AgentStep) -> StepResult:
        is_last = step.path in ("work/2",)
        text = "<promise>DONE</promise>" if is_last else f"did {step.path}"
        if step.path.startswith("gate/rework"):
            self.editors.add(step.path)
        self.sessions[step.session_id] = step.path
        return self.once(step.session_id, step.path, says(text))

    async def run_program(self, step: ProgramStep) -> StepResult:
        failed = StepResult(status="failed", error="no")
        result = says('["a","b"]' if step.path == "list" else f"ran {step.path}")
        if step.path == "group/1/until" or (step.path == "list" and self.effects["list"] == 0):
            result = failed
        if step.path.endswith("/evidence"):
            return says(f"effects {self.effects['gate/rework/1']}")
        return self.once(step.session_id, step.path, result)


def new_steps() -> Effects:
    steps = Effects()
    steps.done, steps.effects = {}, Counter()
    return steps


class CrashingStore:
    """Crashes after the n-th append from now on."""

    def __init__(self, log: SessionLog, left: int) -> None:
        self._append: Any = log.store.append
        self.left = left
        self.count = 0
        self.is_dead = False
        log.store.append = self.append

    async def append(self, append: object) -> None:
        if self.is_dead:
            raise Crash("the process is dead")
        await self._append(append)
        self.count += 1
        self.left -= 1
        if self.left == 0:
            self.is_dead = True
            raise Crash("the process died")


def is_crash(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        errors = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return all(map(is_crash, errors))
    return isinstance(error, Crash)


async def drive(log: SessionLog, run_id: str, steps: Effects, store: CrashingStore) -> RunState:
    """Run to the end, answering the gate: reject, then approve. Whatever crashes is run again."""
    for _ in range(40):
        try:
            state = await run_workflow(log, run_id, steps)
        except Exception as error:
            if not is_crash(error):
                raise
            store.is_dead = False
            continue
        if state.status != "paused":
            return state
        reworked = "gate/rework/1" in state.nodes
        await answer(log, run_id, allow=reworked, text=None if reworked else "not yet")
    raise AssertionError("it does not end")


def final(state: RunState, steps: Effects) -> tuple[object, ...]:
    outputs = {path: (node.status, node.output) for path, node in sorted(state.nodes.items())}
    return state.status, outputs, dict(sorted(steps.effects.items()))


async def cut_off(log: SessionLog, points: Sequence[int] | None) -> None:
    steps = new_steps()
    files = files_of(PARENT, CHILD)
    counter = CrashingStore(log, left=-1)
    first = await start(log, files)
    counter.count = 0
    expected = final(await drive(log, first, steps, counter), steps)
    assert expected[0] == "completed", statuses(await read_run(log, first))
    repeated = {path: n for path, n in steps.effects.items() if n > 1}
    assert repeated == {"list": 3, "verify": 2}  # a retry; what the rework has invalidated
    for point in points or range(1, counter.count + 1):
        steps = new_steps()
        counter.left = -1
        run_id = await start(log, files)
        counter.left = point
        assert final(await drive(log, run_id, steps, counter), steps) == expected, f"point {point}"


async def test_a_run_that_is_cut_off_anywhere_ends_the_same_with_each_step_once(log: SessionLog):
    await cut_off(log, sorted(random.Random(34).sample(range(1, 60), 10)))


@asynccontextmanager
async def postgres_log(url: str) -> AsyncGenerator[SessionLog]:
    async with open_postgres(url) as store:
        yield SessionLog(store)


async def test_a_run_that_is_cut_off_in_postgresql_ends_the_same(postgres_url: str):
    async with postgres_log(postgres_url) as log:
        await cut_off(log, sorted(random.Random(35).sample(range(1, 60), 10)))


@pytest.mark.slow
async def test_every_write_of_a_run_may_be_its_last(tmp_path: Path, postgres_url: str):
    async with opened(tmp_path / "all.db") as log:
        await cut_off(log, None)
    async with postgres_log(postgres_url) as log:
        await cut_off(log, None)
