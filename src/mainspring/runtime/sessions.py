"""Sessions as a program uses them: send, run, interrupt, answer, follow, fork."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal, Protocol

from mainspring.core import ids
from mainspring.core.catalog import ModelFacts
from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.core.envelope import Event
from mainspring.core.errors import BlobNotFound
from mainspring.core.events import (
    AgentMessage,
    PermissionUpdate,
    PermissionUpdated,
    Usage,
    UserCustomToolResult,
    UserInterrupt,
    UserMessage,
    UserToolConfirmation,
)
from mainspring.core.facts import SessionCreated
from mainspring.core.model import Delta, Model
from mainspring.core.tool import Tool
from mainspring.harness import occasions
from mainspring.harness.budget import Purse
from mainspring.harness.context.history import history_read, history_search
from mainspring.harness.desk import Account, Desk, unheard
from mainspring.harness.gates import OpenGates
from mainspring.harness.loop import run
from mainspring.harness.permissions.standing import check_updates
from mainspring.harness.reasons import Terminal
from mainspring.harness.thread import Thread
from mainspring.log.search import search
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem
from mainspring.log.writer import Writer
from mainspring.runtime.agent import Agent, prefix_of, tools_of
from mainspring.runtime.holding import held
from mainspring.runtime.kit import Kit, Opening, Outfit, bare

_SPEECH = ("agent.message", "agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use")


class Models(Protocol):
    """Where models come from; wiring knows the providers, we do not."""

    def open(self, name: str) -> Model: ...

    def put(self, name: str, model: Model) -> None: ...

    def resolve(self, name: str) -> str: ...

    def facts(self, name: str) -> ModelFacts: ...

    def cost(self, name: str, usage: Usage) -> Decimal: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a run; turns, usage and cost are the session's so far."""

    session_id: str
    reason: Terminal
    text: str
    """The agent's last words in this run."""
    turns: int
    usage: Usage
    cost_usd: Decimal
    detail: str | None = None
    waiting_for: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.reason == "completed"


class Runtime:
    """All sessions of one log, and the models they may use."""

    def __init__(
        self,
        log: SessionLog,
        models: Models,
        *,
        outfit: Outfit | None = None,
        purse: Purse | None = None,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self.log = log
        self.models = models
        self.outfit = outfit or bare(OpenGates())
        self.purse = purse or Purse()
        self.new_id = new_id

    async def start(
        self,
        agent: Agent,
        message: str | None = None,
        *,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Session:
        """A new session of the agent, with a first message in its inbox if one is given."""
        agent = self._resolved(agent)
        created = await self.log.create(
            SessionCreated(
                agent_name=agent.name, title=title, metadata=dict(metadata) if metadata else None
            )
        )
        session = Session(self, agent, created.id)
        if message is not None:
            await session.send(message)
        return session

    async def resume(self, agent: Agent, session_id: str) -> Session:
        """Raises: SessionNotFound."""
        session = await self.log.session(session_id)
        return Session(self, self._resolved(agent), session.id)

    def known(self, agent: Agent, session_id: str, before: Session | None = None) -> Session:
        """A session that is there for sure; `before` is the same one as it was run last, of whose
        log then only the rest has to be read."""
        session = Session(self, self._resolved(agent), session_id)
        if before is not None:
            session.recall(before)
        return session

    def _resolved(self, agent: Agent) -> Agent:
        return replace(agent, model=self.models.resolve(agent.model))


@dataclass(frozen=True, slots=True)
class Known:
    """A log folded up to `seq`, kept between runs so that the next one only reads on."""

    thread: Thread
    account: Account
    seq: int


class Session:
    """One session. Several of these, in several processes, may stand for the same one."""

    def __init__(self, runtime: Runtime, agent: Agent, session_id: str) -> None:
        self.id = session_id
        self.agent = agent
        self._runtime = runtime
        self._log = runtime.log
        self._known: Known | None = None
        self._is_begun = False

    @property
    def log(self) -> SessionLog:
        return self._log

    def recall(self, before: Session) -> None:
        """Take over what another object of the same session knows of its log."""
        self._known, self._is_begun = before._known, before._is_begun

    async def send(
        self, message: str | Sequence[Block], *, client_id: str | None = None
    ) -> InboxItem:
        """Put a message into the inbox; whoever runs the session takes it from there."""
        content = (TextBlock(message),) if isinstance(message, str) else tuple(message)
        return await self._log.submit(self.id, UserMessage(content=content), client_id=client_id)

    async def interrupt(self, *, client_id: str | None = None) -> InboxItem:
        """Stop what runs, at once; what was said and done so far is kept."""
        return await self._log.submit(self.id, UserInterrupt(), client_id=client_id)

    async def answer(
        self,
        call_id: str,
        result: Literal["allow", "deny"],
        *,
        message: str | None = None,
        client_id: str | None = None,
    ) -> InboxItem:
        """Answer a call that waits for a person."""
        return await self._log.submit(
            self.id,
            UserToolConfirmation(tool_use_id=call_id, result=result, deny_message=message),
            client_id=client_id,
        )

    async def permit(
        self, *updates: PermissionUpdate, call_id: str | None = None, client_id: str | None = None
    ) -> InboxItem:
        """Change what this session may do: rules, grants that end, the mode.

        Raises:
            InvalidInput: it cannot be understood; nothing has changed.
        """
        check_updates(updates)
        payload = PermissionUpdated(updates=updates, tool_use_id=call_id)
        return await self._log.submit(self.id, payload, client_id=client_id)

    async def settle(
        self,
        call_id: str,
        content: str | Sequence[Block],
        *,
        ok: bool = True,
        client_id: str | None = None,
    ) -> InboxItem:
        """Give the result of a call to one of the client's own tools."""
        blocks = (TextBlock(content),) if isinstance(content, str) else tuple(content)
        return await self._log.submit(
            self.id,
            UserCustomToolResult(custom_tool_use_id=call_id, content=blocks, is_error=not ok),
            client_id=client_id,
        )

    async def fork(self, *, at: int | None = None, title: str | None = None) -> Session:
        forked = await self._log.fork(self.id, at=at, title=title)
        return Session(self._runtime, self.agent, forked.id)

    async def events(self, *, after: int = 0) -> list[Event]:
        return await self._log.read(self.id, after=after)

    def follow(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        return self._log.follow(self.id, after=after)

    async def run(
        self,
        emit: Callable[[Delta], None] = unheard,
        *,
        tell: Callable[[Event], None] = unheard,
    ) -> Result | None:
        """Wake the session and run it until it ends or waits; `None` if nothing was to be done.

        Safe to call after any crash, on any machine: it goes on where the log ends. Tokens go to
        `emit` as they come, events to `tell` once they are in the log, in order with the tokens.

        Raises:
            LeaseHeld: another worker runs it.
        """
        async with held(self._log, self.id, new_id=self._runtime.new_id) as writer:
            begun = writer.head.seq
            known, self._known = self._known, None
            known = await self._read_on(writer, known)
            opening = Opening(agent=self.agent, thread=known.thread, writer=writer, log=self._log)
            async with self._runtime.outfit(opening) as kit:
                desk = self._desk(writer, known, kit)
                desk.emit, desk.tell = emit, tell
                desk.note(*kit.facts)
                await self._begin(desk)
                ended = await run(desk)
            self._known = Known(desk.thread, desk.account, writer.head.seq)
        if ended is None:
            return None
        return Result(
            session_id=self.id,
            reason=ended.reason,
            text=await self._last_words(begun),
            turns=desk.thread.turns,
            usage=desk.account.usage,
            cost_usd=desk.account.spent.cost_usd,
            detail=ended.detail,
            waiting_for=ended.waiting_for,
        )

    async def _read_on(self, writer: Writer, known: Known | None) -> Known:
        """Fold what this object has not seen yet: a log is only ever added to."""
        known = known or Known(Thread(id=writer.thread_id), Account(), 0)
        for event in await self._log.read(self.id, after=known.seq):
            known.thread.apply(event)
            known.account.apply(event)
        return known

    async def _begin(self, desk: Desk) -> None:
        """Once for every process that has to do with it."""
        if not self._is_begun:
            self._is_begun = True
            source = "resume" if desk.thread.turns else "startup"
            await desk.ask_hooks(occasions.session_started(source, self.agent.model))

    def _desk(self, writer: Writer, known: Known, kit: Kit) -> Desk:
        runtime = self._runtime
        brought = [tool for tool in self.agent.tools if tool.spec.name not in kit.denied]
        tools = tools_of(replace(self.agent, tools=brought), *kit.tools, *self._history())
        client_tools = [*self.agent.client_tools, *kit.client_tools]
        at_once = [tool.spec for name, tool in tools.items() if name not in kit.deferred]
        desk = Desk(
            writer=writer,
            thread=known.thread,
            account=known.account,
            model=runtime.models.open(self.agent.model),
            facts=runtime.models.facts(self.agent.model),
            prefix=prefix_of(self.agent, [*at_once, *client_tools], environment=kit.environment),
            tools=tools,
            custom_tools=frozenset(spec.name for spec in client_tools),
            deferred=kit.deferred,
            aliases=kit.aliases,
            box=kit.box,
            snapshots=kit.snapshots,
            overheard=kit.overheard,
            limits=self.agent.limits,
            gates=kit.gates,
            purse=replace(runtime.purse, agent=self.agent.name),
            new_id=runtime.new_id,
            price=runtime.models.cost,
        )
        desk.load(known.thread.gear.loaded)
        return desk

    def _history(self) -> tuple[Tool, Tool]:
        """What finds and reads again what a compaction or a cap took out of sight."""
        return (
            history_search(
                lambda query, limit: search(self._log, query, session_id=self.id, limit=limit)
            ),
            history_read(self._kept),
        )

    async def _kept(self, digest: str) -> bytes:
        """A blob of this session's; those of others are not to be had.

        Raises:
            BlobNotFound
        """
        for segment in await self._log.lineage(self.id):
            if digest in await self._log.store.blobs(segment.session_id):
                return await self._log.blob(digest)
        raise BlobNotFound(digest)

    async def _last_words(self, after: int) -> str:
        """What the agent said last in the run that began after an event."""
        words: list[str] = []
        for event in await self._log.read(self.id, after=after, types=_SPEECH):
            if isinstance(event.payload, AgentMessage):
                words.append(plain_text(event.payload.content))
            else:
                words.clear()
        return "\n\n".join(words)
