"""A worker with a runtime on SQLite: sessions that the service knows, and what became of them."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import Event
from tests.senders import TESTER

from mainspring import Agent, Runtime, open_runtime
from mainspring.core import clock
from mainspring.core.clock import to_micros
from mainspring.core.content import TextBlock
from mainspring.core.events import UserMessage
from mainspring.log.records import SESSION_KIND, Put, RecordRow
from mainspring.log.session_log import SessionLog
from mainspring.log.task_groups import run_in_background
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.jobs.worker import Worker, WorkerSettings
from mainspring.testing import Model

AGENT = Agent(name="clerk")


async def known_session(log: SessionLog, *, tenant: str = "acme", text: str | None = None) -> str:
    """A session that the service has made; with a message that nobody was woken for."""
    session = await log.create()
    moment = to_micros(clock.now())
    record = RecordRow(
        tenant=tenant, kind=SESSION_KIND, id=session.id, created=moment, updated=moment, body=b"{}"
    )
    await log.store.records.write(Put(row=record))
    if text is not None:
        await say(log, session.id, text)
    return session.id


async def say(log: SessionLog, session_id: str, text: str) -> None:
    await log.submit(session_id, UserMessage(content=(TextBlock(text),)), sender=TESTER)


@dataclass
class Shop:
    runtime: Runtime
    dispatcher: EmbeddedDispatcher
    worker: Worker

    @property
    def log(self) -> SessionLog:
        return self.runtime.log

    async def session(self, text: str | None = None, *, tenant: str = "acme") -> str:
        return await known_session(self.log, tenant=tenant, text=text)

    async def kinds(self, session_id: str) -> list[str]:
        return [event.type for event in await self.log.read(session_id)]

    async def until(self, session_id: str, type_: str) -> None:
        with anyio.fail_after(60):
            async for event in self.log.follow(session_id):
                if event.type == type_:
                    return


@asynccontextmanager
async def shop(
    folder: Path,
    model: Model,
    *,
    run: Callable[[str], Awaitable[None]] | None = None,
    pace: WorkerSettings | None = None,
) -> AsyncGenerator[Shop]:
    async with open_runtime(store=str(folder / "log.db")) as runtime:
        runtime.models.put(AGENT.model, model)

        async def run_session(session_id: str) -> None:
            session = await runtime.resume(AGENT, session_id)
            await session.run()

        dispatcher = EmbeddedDispatcher(runtime.log.store.records)
        worker = Worker(
            dispatcher,
            runtime.log,
            run or run_session,
            worker_settings=pace
            or WorkerSettings(concurrency=4, drain_seconds=5, sweep_seconds=0.05),
        )
        yield Shop(runtime, dispatcher, worker)


@asynccontextmanager
async def at_work(worker: Worker) -> AsyncGenerator[Event]:
    closing = Event()

    async def work() -> None:
        await worker.work(closing)

    async with run_in_background(work):
        yield closing
