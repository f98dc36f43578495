"""A session with subagents and a model that answers each thread by what it was asked."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from mainspring import Agent, Runtime, open_runtime
from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted, ScriptLine, says
from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.events import ThreadCreated
from mainspring.core.model import Assistant, Request, ToolResultBlock, User
from mainspring.runtime.session.run_result import RunResult
from mainspring.runtime.subagent import BUILT_IN_SUBAGENTS
from mainspring.testing import calls

Play = Callable[[Request], ScriptAnswer]


def task_of(request: Request) -> str:
    """The first words that a thread was given."""
    first = request.messages[0]
    assert isinstance(first, User)
    return "\n".join(part.text for part in first.content if isinstance(part, TextBlock))


def newest(request: Request) -> str:
    """All that came since the model spoke last: results and words."""
    last = request.messages[-1]
    assert isinstance(last, User)
    texts: list[str] = []
    for part in last.content:
        blocks = part.content if isinstance(part, ToolResultBlock) else (part,)
        texts += [block.text for block in blocks if isinstance(block, TextBlock)]
    return "\n".join(texts)


def turn_of(request: Request) -> int:
    """How often the model has spoken in this conversation."""
    return sum(isinstance(message, Assistant) for message in request.messages)


def troupe(parts: Mapping[str, Play], *, latency_seconds: float = 0) -> Scripted:
    """Each part answers the threads whose task has its name in it."""

    def answer(request: Request) -> ScriptAnswer:
        task = task_of(request)
        for name, play in parts.items():
            if name in task:
                return play(request)
        return says(f"no part for {task!r}")

    return Scripted(otherwise=answer, latency_seconds=latency_seconds)


LEAD = Agent(name="lead", instructions="Lead.", subagents=BUILT_IN_SUBAGENTS)


@asynccontextmanager
async def staged(folder: Path, model: Scripted) -> AsyncGenerator[Runtime]:
    async with open_runtime(store=str(folder / "log.db")) as runtime:
        runtime.models.put(LEAD.model, model)
        yield runtime


async def played(
    folder: Path, model: Scripted, agent: Agent = LEAD
) -> tuple[RunResult, list[Event]]:
    """The result of a session that begins with `begin`, and its log."""
    async with staged(folder, model) as runtime:
        session = await runtime.start(agent, "begin")
        with anyio.fail_after(60):
            result = await session.run()
        assert result is not None
        return result, await session.events()


def kinds_of(events: list[Event], thread_id: str) -> list[str]:
    return [event.type for event in events if event.thread_id == thread_id]


def ask(task: str, **more: object) -> ScriptLine:
    return calls("agent", description=task, prompt=f"task {task}", **more)


def once(first: ScriptAnswer, then: str = "all done") -> Play:
    """Say `first`, and after its results `then`."""

    def play(request: Request) -> ScriptAnswer:
        return first if turn_of(request) == 0 else says(f"{then}: {newest(request)}")

    return play


def reply(text: str) -> Play:
    return lambda _: says(text)


def births(events: list[Event]) -> list[ThreadCreated]:
    return [event.payload for event in events if isinstance(event.payload, ThreadCreated)]
