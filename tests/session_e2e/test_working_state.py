"""The working state: a task list that survives compaction and restarts, and the status block that
ends each request with it.
"""

from dataclasses import replace
from pathlib import Path

import anyio
from tests.harness.killable_sandbox_worker import settings_of
from tests.senders import TESTER

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.content import TextBlock
from mainspring.core.events import CompactionRequested, ContextStatus, ModelRequestStarted
from mainspring.core.model import Request, ToolResultBlock
from mainspring.harness.limits import Limits
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.runtime_assembly import open_runtime

AGENT = Agent(name="planner", model="scripted:plan", built_ins=("task_list",))


def last_block(request: Request) -> str:
    """The last block of the newest turn."""
    part = request.messages[-1].content[-1]
    assert isinstance(part, TextBlock), part
    return part.text.removeprefix("<system-note>\n").removesuffix("\n</system-note>")


async def test_each_request_of_a_task_ends_with_a_status_block(tmp_path: Path):
    model = Scripted(
        calls("TaskCreate", subject="Read the code") + calls("TaskCreate", subject="Mend it"),
        calls("task_update", task_id="2", add_blocked_by=["1"]),
        calls("task_update", task_id="1", status="in_progress"),
        calls("task_update", task_id="1", status="completed"),
        calls("task_update", task_id="2", status="failed", note="read-only disk"),
        says("I could not."),
        says("No."),
    )
    agent = replace(AGENT, limits=Limits(max_turns=20))
    with anyio.fail_after(60):
        async with open_runtime(
            settings_of(tmp_path), options=RunOptions(workspace=tmp_path / "w")
        ) as runtime:
            (tmp_path / "w").mkdir()
            runtime.models.put(agent.model, model)
            session = await runtime.start(agent, "Make the tests green, please.")
            await session.run()
            await session.send("Anything else?")
            await session.run()
            log = await session.events()
    endings = [last_block(request) for request in model.requests]
    goal = "Goal: Make the tests green, please."
    assert endings[0].startswith("Budget: ")
    assert endings[1] == "\n".join(
        (goal, "Done: 0 of 2 tasks", "Left: #1 Read the code; #2 Mend it", endings[0])
    )
    assert endings[2].splitlines()[2] == "Left: #1 Read the code; #2 Mend it (after #1)"
    assert endings[3].splitlines()[2:4] == ["Now: #1 Read the code", "Left: #2 Mend it (after #1)"]
    assert endings[4].splitlines()[1] == "Done: 1 of 2 tasks, last #1 Read the code"
    assert endings[5].splitlines()[2] == "Failed: #2 Mend it (read-only disk)"
    assert "Goal" not in endings[6], "the new task ends the request itself"
    assert all(
        later.messages[: len(before.messages)] == before.messages
        for before, later in zip(model.requests, model.requests[1:], strict=False)
    )
    breaks = [e.payload.cache_break for e in log if isinstance(e.payload, ModelRequestStarted)]
    assert set(breaks) == {None}
    assert sum(isinstance(event.payload, ContextStatus) for event in log) == len(model.requests)


async def test_the_task_list_survives_a_compaction_and_another_process(tmp_path: Path):
    model = Scripted(
        calls("task_create", subject="Read the code", description="All of it: " + "x " * 1_000),
        says("Planned."),
        says("A summary without any task."),
        calls("task_get", task_id="1"),
        says("Done."),
    )
    (tmp_path / "w").mkdir()
    options = RunOptions(workspace=tmp_path / "w")
    with anyio.fail_after(60):
        async with open_runtime(settings_of(tmp_path), options=options) as runtime:
            runtime.models.put(AGENT.model, model)
            session = await runtime.start(AGENT, "Plan it.")
            await session.run()
            await runtime.log.submit(session.id, CompactionRequested(), sender=TESTER)
            await session.run()
        async with open_runtime(settings_of(tmp_path), options=options) as runtime:
            runtime.models.put(AGENT.model, model)
            session = await runtime.resume(AGENT, session.id)
            await session.send("Go on.")
            await session.run()
    assert "Left: #1 Read the code" in str(model.requests[-2].messages)
    [result] = [
        part
        for part in model.requests[-1].messages[-1].content
        if isinstance(part, ToolResultBlock)
    ]
    assert "All of it: x x" in str(result.content)
