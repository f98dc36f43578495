"""Replay: runs a recorded session again offline, to check that it behaves the same.

from mainspring.testing.replay import replay_file

def test_the_release_goes_as_it_went():
    replay_file("release.jsonl").check()

The loop, the context and the compactions are the real ones. The model, the tools, the permission
decisions and the messages from outside are the recorded ones. The replay ends at the first request
that differs from the recorded one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import anyio

from mainspring.capabilities.providers.catalog import bundled_catalog
from mainspring.capabilities.providers.model_registry import facts_of
from mainspring.core import events, ids
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.events import SessionCreated, SessionImported
from mainspring.core.model import Model, ToolSpec
from mainspring.core.model_facts import ModelFacts
from mainspring.core.sender import Sender
from mainspring.function_tools.output_types import output_tool
from mainspring.harness.budget import BudgetTier
from mainspring.harness.context.history_tools import history_read, history_search
from mainspring.harness.context.request_builder import PromptPrefix
from mainspring.harness.event_sink import EventSink
from mainspring.harness.limits import Limits
from mainspring.harness.loop import run
from mainspring.harness.state.thread import OUTPUT_TOOL, Thread
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.harness.toolbox import Toolbox
from mainspring.log.container import import_lines
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import SessionRow
from mainspring.log.transfer import export_lines
from mainspring.retrieval.history import search_history
from mainspring.runtime.adoption import adopt_everything
from mainspring.runtime.agent import Agent, prefix_of, tools_of
from mainspring.runtime.replay.recording import Recording, read_recording
from mainspring.runtime.replay.replay_cursor import Divergence, RecordedCrash, ReplayCursor
from mainspring.runtime.session.xrays import read_shots
from mainspring.testing.replay_doubles import (
    RecordedAuthorizer,
    RecordedModel,
    RecordedThreadContext,
    recorded_tools,
)

Facts: TypeAlias = Callable[[str], ModelFacts]

_SENDER = Sender(kind="system", id="replay")
_OWNER = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of a replay."""

    session_id: str
    """The recorded session."""
    calls: int
    """How many model calls were replayed."""
    divergence: Divergence | None = None
    is_imported: bool = False
    """Whether it was imported from another tool; only what came after the import can be
    replayed."""

    @property
    def ok(self) -> bool:
        return self.divergence is None

    def check(self) -> None:
        """Raises: AssertionError."""
        if self.divergence is not None:
            raise AssertionError(
                f"session {self.session_id} diverged from its recording: {self.divergence}"
            )


def replay_file(
    path: str | Path,
    *,
    start: int | None = None,
    agent: Agent | None = None,
    facts: Facts | None = None,
) -> ReplayResult:
    """Replay a file that `mainspring log export` wrote. For tests: it blocks and needs no event
    loop.

    With an `agent`, its instructions, tool schemas and limits replace the recorded ones, so a
    change that the model would see is a difference."""
    return anyio.run(partial(_replay_file, Path(path), start=start, agent=agent, facts=facts))


async def _replay_file(
    path: Path, *, start: int | None, agent: Agent | None, facts: Facts | None
) -> ReplayResult:
    content = await anyio.Path(path).read_bytes()
    async with _copy_session(_lines(content)) as (log, session):
        return await _replay(log, session, start=start, agent=agent, facts=facts)


async def replay(
    log: SessionLog,
    session_id: str,
    *,
    start: int | None = None,
    agent: Agent | None = None,
    facts: Facts | None = None,
) -> ReplayResult:
    """Replay a session of a log, from its beginning or after `start`.

    Nothing is written to the log.

    Raises:
        SessionNotFound, InvalidInput
    """
    async with _copy_session(export_lines(log, session_id)) as (copy, session):
        return await _replay(copy, session, start=start, agent=agent, facts=facts)


def catalog_facts(name: str) -> ModelFacts:
    """The facts of a model in the shipped catalog; for other models, typical values."""
    try:
        return facts_of(bundled_catalog(), name)
    except InvalidInput:
        return ModelFacts(id=name, window=200_000, max_output=64_000)


async def _replay(
    log: SessionLog,
    session: SessionRow,
    *,
    start: int | None = None,
    agent: Agent | None = None,
    facts: Facts | None = None,
) -> ReplayResult:
    recording = await read_session(log, session)
    played = await _begin(log, session, start)
    player = Player(
        log=log,
        session=played,
        recording=recording,
        facts=facts or catalog_facts,
        agent=agent,
    )
    calls, divergence = await player.play()
    return ReplayResult(
        session_id=session.id,
        calls=calls,
        divergence=divergence,
        is_imported=last_imported_seq(await log.read(session.id)) is not None,
    )


async def read_session(log: SessionLog, session: SessionRow) -> Recording:
    shots = await read_shots(log, session)
    return read_recording(
        await log.read(session.id), thread_id=session.thread_id, model_calls=shots
    )


async def _begin(log: SessionLog, session: SessionRow, start: int | None) -> SessionRow:
    """A session in the state of the recorded one at `start`, or at its beginning."""
    recorded = await log.read(session.id)
    imported = last_imported_seq(recorded) if start is None else None
    if imported is not None:
        return await log.fork(
            session.id, at=next_step_boundary(recorded, session.thread_id, imported)
        )
    if start is not None:
        at = last_step_boundary(recorded, session.thread_id, start)
        return await log.fork(session.id, at=at)
    if session.parent_id is not None:
        return await log.fork(session.id, at=session.parent_seq)
    first = recorded[0].payload
    return await log.create(first if isinstance(first, SessionCreated) else None)


def last_imported_seq(log: Iterable[Event]) -> int | None:
    """The last event that was imported from another tool: it cannot be replayed."""
    imported = [event.seq for event in log if isinstance(event.payload, SessionImported)]
    return imported[-1] if imported else None


def next_step_boundary(log: list[Event], thread_id: str, start: int) -> int:
    """The first event from `start` on after which nothing is in progress: calls may have been open
    when the session was imported."""
    thread = Thread(id=thread_id)
    for event in log:
        thread.apply(event)
        if event.seq >= start and _is_between_steps(thread):
            return event.seq
    return log[-1].seq


def last_step_boundary(log: list[Event], thread_id: str, start: int) -> int:
    """The last event up to `start` after which nothing is in progress."""
    thread, at = Thread(id=thread_id), 1
    for event in log:
        if event.seq > start:
            break
        thread.apply(event)
        if _is_between_steps(thread):
            at = event.seq
    return at


def _is_between_steps(thread: Thread) -> bool:
    is_between = thread.open_request is None and thread.open_reservation is None
    is_over = thread.running and thread.is_answered  # but for saying so
    return is_between and not is_over and not thread.unsettled_calls()


@dataclass(slots=True, kw_only=True)
class Player:
    """Plays a recording in a separate session."""

    log: SessionLog
    session: SessionRow
    recording: Recording
    facts: Facts
    agent: Agent | None = None

    async def play(self) -> tuple[int, Divergence | None]:
        """Returns the number of calls, and where the replay differs from the recording, if it
        does."""
        script = ReplayCursor(
            recording=self.recording, interrupt=self._interrupt, repeats_budget=self.agent is None
        )
        script.restart(await self._played())
        skipped = script.begun
        model = RecordedModel(script)
        reason: str | None = None
        while self._goes_on(script):
            before = script.replay_progress, script.begun
            context = await self._context(script, model)
            has_crashed = False
            try:
                run_end = await run(context)
                reason = None if run_end is None else run_end.reason
            except* RecordedCrash:
                has_crashed = True
            await context.writer.release()
            if has_crashed:
                script.restart(await self._played())
            elif (
                model.replay.diverged is not None
                or (script.replay_progress, script.begun) == before
            ):
                break
        return script.begun - skipped, self._divergence(script, model, reason)

    async def _played(self) -> list[Event]:
        """The events so far in the thread that is played."""
        return await self.log.read(self.session.id, threads=[self.session.thread_id])

    def _goes_on(self, replay_cursor: ReplayCursor) -> bool:
        """Whether the replay continues. A recording that was cut off in the middle of a run ends
        with its last call."""
        calls, runs = replay_cursor.begun, replay_cursor.replay_progress.idle
        return calls < len(self.recording.model_calls) or runs < len(self.recording.ends)

    def _divergence(
        self, replay_cursor: ReplayCursor, model: RecordedModel, reason: str | None
    ) -> Divergence | None:
        if replay_cursor.divergence is not None:
            return replay_cursor.divergence
        calls, recorded = replay_cursor.begun, len(self.recording.model_calls)
        if model.replay.diverged is not None:
            return Divergence(call=calls, what=f"it was never made: the recording has {recorded}")
        if calls < recorded:
            ending = f"ended with {reason}" if reason else "had nothing more to do"
            return Divergence(call=calls + 1, what=f"it is not made any more: the session {ending}")
        ends = [ending for _, ending in self.recording.ends]
        if reason is not None and ends and reason != ends[-1]:
            return Divergence(call=calls, what=f"the session ended with {reason}, not {ends[-1]}")
        return None

    async def _interrupt(self) -> object:
        return await self.log.submit(
            self.session.id, events.UserInterrupt(), client_id=ids.new_id(ids.EVENT), sender=_SENDER
        )

    async def _context(self, replay_cursor: ReplayCursor, model: Model) -> RecordedThreadContext:
        writer = await self.log.hold(self.session.id, owner=_OWNER)
        log = await self.log.read(self.session.id)
        record = EventSink(writer=writer, thread_tree=ThreadTree.of(log, writer.thread_id))
        prefix = self._prefix(replay_cursor)
        context = RecordedThreadContext(
            event_sink=record,
            thread=record.thread_tree.main.thread,
            model=model,
            facts=self.facts(prefix.model),
            prompt_prefix=prefix,
            toolbox=Toolbox(
                authorizer=RecordedAuthorizer(replay_cursor),
                tools=recorded_tools(replay_cursor, [*self.recording.specs(), *prefix.tools]),
                client_tools=[
                    ToolSpec(name=call.name, description="", input_schema={})
                    for call in self.recording.calls
                    if call.is_custom
                ],
            ),
            tiers=[
                BudgetTier(
                    record.thread_tree.main.spend_account,
                    Limits() if self.agent is None else self.agent.limits,
                )
            ],
            new_id=ids.new_id,
            price=replay_cursor.cost,
        )
        context.replay_cursor = replay_cursor
        return context

    def _prefix(self, replay_cursor: ReplayCursor) -> PromptPrefix:
        """The recorded prefix of the next call; or the agent's."""
        if self.agent is not None:
            built_in = (
                history_search(lambda query, limit: search_history(self.log, query, limit=limit)),
                history_read(self.log.blob),
            )
            agent = self.agent
            if agent.model == Agent().model and self.recording.model_calls:  # any of them will do
                agent = replace(agent, model=self.recording.model_calls[0].request.model)
            output = agent.output
            prefix = () if output is None else (output_tool(OUTPUT_TOOL, output),)
            tools = tools_of(agent, *built_in, *prefix)
            return prefix_of(agent, [*(tool.spec for tool in tools.values()), *agent.client_tools])
        shots = self.recording.model_calls
        if not shots:
            return PromptPrefix(model="none", system=(), tools=())
        request = shots[min(replay_cursor.begun, len(shots) - 1)].request
        return PromptPrefix(
            model=request.model, system=request.system, tools=request.tools, effort=request.effort
        )


@asynccontextmanager
async def _copy_session(
    lines: AsyncIterator[bytes],
) -> AsyncGenerator[tuple[SessionLog, SessionRow], None]:
    """Copy the session into a temporary store."""
    with TemporaryDirectory(prefix="mainspring-replay-") as folder:
        async with open_sqlite(Path(folder) / "replay.db") as store:
            log = SessionLog(store)
            added = await import_lines(log, lines)
            await adopt_everything(log)  # nothing in it takes effect: all calls are recorded
            yield log, await log.session(added[-1])


async def _lines(content: bytes) -> AsyncGenerator[bytes, None]:
    for line in content.splitlines():
        yield line


__all__ = ["Divergence", "Facts", "ReplayResult", "catalog_facts", "replay", "replay_file"]
