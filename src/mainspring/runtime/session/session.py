"""Sessions as a program uses them: start, send, run, interrupt, answer, follow, fork."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from mainspring.core import ids
from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import (
    AgentMessage,
    ClientPayload,
    PermissionUpdate,
    PermissionUpdated,
    Usage,
    UserCustomToolResult,
    UserInterrupt,
    UserMessage,
    UserToolConfirmation,
)
from mainspring.core.facts import SessionCreated
from mainspring.core.model import Delta
from mainspring.core.sender import Origin, Sender
from mainspring.core.tool import Tool
from mainspring.harness import hook_events
from mainspring.harness.authorizer import AllowAll
from mainspring.harness.budget import Budget
from mainspring.harness.event_sink import EventSink, ignore_event
from mainspring.harness.permissions.grant_state import check_updates
from mainspring.harness.state.thread_tree import ThreadNode, ThreadTree
from mainspring.harness.stop_reasons import EndReason
from mainspring.harness.thread_context import ThreadContext, ignore_delta
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem
from mainspring.log.writer import Writer
from mainspring.runtime.agent import Agent
from mainspring.runtime.session.lease import hold_session
from mainspring.runtime.session.pinned_agent import pin_agent
from mainspring.runtime.session.session_context import Models, SessionContext
from mainspring.runtime.session.toolbox import (
    SetupRequest,
    Toolbox,
    ToolboxFactory,
    toolbox_without_tools,
)
from mainspring.runtime.subagents.skill_tool import skill_call_lookup, skill_tools
from mainspring.runtime.subagents.subagent_tools import subagent_tools
from mainspring.runtime.subagents.supervisor import SubagentSupervisor, open_supervisor
from mainspring.runtime.subagents.thread_factory import ThreadFactory

PROGRAM = Sender(kind="system", id="program")
"""A program that uses the runtime and does not say for whom."""
_ANSWER_EVENT_TYPES = (
    "agent.message",
    "agent.tool_use",
    "agent.mcp_tool_use",
    "agent.custom_tool_use",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a run; turns, usage and cost are the session's so far."""

    session_id: str
    reason: EndReason
    text: str
    """The agent's last words in this run."""
    turns: int
    usage: Usage
    cost_usd: Decimal
    detail: str | None = None
    waiting_for: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.reason in ("completed", "compacted")


class Runtime:
    """All sessions of one log, and the models they may use."""

    def __init__(
        self,
        log: SessionLog,
        models: Models,
        *,
        toolbox_factory: ToolboxFactory | None = None,
        budget: Budget | None = None,
        sender: Sender = PROGRAM,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        """`sender`: who speaks to sessions through this."""
        self.log = log
        self.sender = sender
        self.models = models
        self.toolbox_factory = toolbox_factory or toolbox_without_tools(AllowAll())
        self.budget = budget or Budget()
        self.new_id = new_id

    async def start(
        self,
        agent: Agent,
        message: str | None = None,
        *,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        origin: Origin | None = None,
    ) -> Session:
        """A new session of the agent, with a first message in its inbox if one is given.

        `origin`: what it is made by or for, if not by whoever uses this runtime.
        """
        agent = self._resolved(agent)
        created = await self.log.create(
            SessionCreated(
                agent_name=agent.name,
                agent_version=agent.version,
                title=title,
                metadata=dict(metadata) if metadata else None,
                origin=origin or Origin(type="user", id=self.sender.id),
            ),
            sender=self.sender,
        )
        session = Session(self, agent, created.id)
        if message is not None:
            await session.send(message)
        return session

    async def resume(self, agent: Agent, session_id: str) -> Session:
        """Raises: SessionNotFound."""
        session = await self.log.session(session_id)
        return Session(self, self._resolved(agent), session.id)

    def attach(self, agent: Agent, session_id: str, before: Session | None = None) -> Session:
        """A session that is there for sure; `before` is the same one as it was run last, of whose
        log then only the rest has to be read."""
        session = Session(self, self._resolved(agent), session_id)
        if before is not None:
            session.reuse_fold(before)
        return session

    def _resolved(self, agent: Agent) -> Agent:
        return replace(agent, model=self.models.resolve(agent.model))


@dataclass(frozen=True, slots=True)
class FoldedLog:
    """A log folded up to `seq`, kept between runs so that the next one only reads on."""

    thread_tree: ThreadTree
    seq: int


class Session:
    """One session. Several of these, in several processes, may stand for the same one."""

    def __init__(self, runtime: Runtime, agent: Agent, session_id: str) -> None:
        self.id = session_id
        self.agent = agent
        self._runtime = runtime
        self._log = runtime.log
        self._known: FoldedLog | None = None
        self._is_begun = False

    @property
    def log(self) -> SessionLog:
        return self._log

    def reuse_fold(self, before: Session) -> None:
        """Take over what another object of the same session knows of its log."""
        self._known, self._is_begun = before._known, before._is_begun

    async def send(
        self,
        message: str | Sequence[Block],
        *,
        client_id: str | None = None,
        skill: str | None = None,
    ) -> InboxItem:
        """Put a message into the inbox; whoever runs the session takes it from there.

        `skill` is the one that it calls, if any: what that one allows, it allows until the run
        ends.
        """
        content = (TextBlock(message),) if isinstance(message, str) else tuple(message)
        payload = UserMessage(content=content, skill=skill)
        return await self._submit(payload, client_id)

    async def interrupt(self, *, client_id: str | None = None) -> InboxItem:
        """Stop what runs, at once; what was said and done so far is kept."""
        return await self._submit(UserInterrupt(), client_id)

    async def answer(
        self,
        call_id: str,
        result: Literal["allow", "deny"],
        *,
        message: str | None = None,
        client_id: str | None = None,
    ) -> InboxItem:
        """Answer a call that waits for a person."""
        return await self._submit(
            UserToolConfirmation(tool_use_id=call_id, result=result, deny_message=message),
            client_id,
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
        return await self._submit(payload, client_id)

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
        return await self._submit(
            UserCustomToolResult(custom_tool_use_id=call_id, content=blocks, is_error=not ok),
            client_id,
        )

    async def _submit(self, payload: ClientPayload, client_id: str | None) -> InboxItem:
        sender = self._runtime.sender
        return await self._log.submit(self.id, payload, sender=sender, client_id=client_id)

    async def fork(self, *, at: int | None = None, title: str | None = None) -> Session:
        forked = await self._log.fork(self.id, at=at, title=title, sender=self._runtime.sender)
        return Session(self._runtime, self.agent, forked.id)

    async def events(self, *, after: int = 0) -> list[Event]:
        return await self._log.read(self.id, after=after)

    def follow(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        return self._log.follow(self.id, after=after)

    async def run(
        self,
        emit: Callable[[Delta], None] = ignore_delta,
        *,
        tell: Callable[[Event], None] = ignore_event,
    ) -> Result | None:
        """Wake the session and run it until it ends or waits; `None` if nothing was to be done.

        Safe to call after any crash, on any machine: it goes on where the log ends. Tokens go to
        `emit` as they come, events to `tell` once they are in the log, in order with the tokens.

        Raises:
            LeaseHeld: another worker runs it.
        """
        async with hold_session(self._log, self.id, new_id=self._runtime.new_id) as writer:
            begun = writer.head.seq
            known, self._known = self._known, None
            thread_tree = await self._fold_new_events(writer, known)
            main = thread_tree.main
            opening = SetupRequest(
                agent=self.agent, thread=main.thread, writer=writer, log=self._log
            )
            window = self._runtime.models.facts(self.agent.model).window
            agent, kept = await pin_agent(opening, window=window)
            opening = replace(opening, agent=agent)
            record = EventSink(writer=writer, thread_tree=thread_tree, on_event=tell)
            async with (
                self._runtime.toolbox_factory(opening) as toolbox,
                open_supervisor(self._thread_factory(agent, record, toolbox)) as supervisor,
            ):
                context = self._main_context(supervisor)
                context.emit = emit
                context.skill_called = skill_call_lookup(agent, self.id, main.thread)
                context.note(*kept, *toolbox.facts)
                await self._begin(context)
                ended = await supervisor.run(context)
            self._known = FoldedLog(thread_tree, writer.head.seq)
        if ended is None:
            return None
        return Result(
            session_id=self.id,
            reason=ended.reason,
            text=await self._final_text(begun, main.id),
            turns=main.thread.turns,
            usage=main.spend_account.usage,
            cost_usd=main.spend_account.spending.cost_usd,
            detail=ended.detail,
            waiting_for=ended.waiting_for,
        )

    async def _fold_new_events(self, writer: Writer, folded_log: FoldedLog | None) -> ThreadTree:
        """Fold what this object has not seen yet: a log is only ever added to."""
        thread_tree, seq = (
            (folded_log.thread_tree, folded_log.seq)
            if folded_log
            else (ThreadTree(writer.thread_id), 0)
        )
        for event in await self._log.read(self.id, after=seq):
            thread_tree.apply(event)
        return thread_tree

    async def _begin(self, context: ThreadContext) -> None:
        """Once for every process that has to do with it."""
        if not self._is_begun:
            self._is_begun = True
            source = "resume" if context.thread.turns else "startup"
            await context.run_hooks(hook_events.session_started(source, self.agent.model))

    def _thread_factory(self, agent: Agent, sink: EventSink, toolbox: Toolbox) -> ThreadFactory:
        runtime = self._runtime
        session_context = SessionContext(
            log=self._log,
            models=runtime.models,
            event_sink=sink,
            budget=replace(runtime.budget, agent=self.agent.name),
            new_id=runtime.new_id,
        )
        return ThreadFactory(
            session_context=session_context, agent=agent, toolbox=toolbox, extra_tools=_extra_tools
        )

    def _main_context(self, supervisor: SubagentSupervisor) -> ThreadContext:
        return supervisor.main_context()

    async def _final_text(self, after: int, thread_id: str) -> str:
        """What the agent said last in the run that began after an event."""
        words: list[str] = []
        main = frozenset((thread_id,))
        for event in await self._log.read(
            self.id, after=after, types=_ANSWER_EVENT_TYPES, threads=main
        ):
            if isinstance(event.payload, AgentMessage):
                words.append(plain_text(event.payload.content))
            else:
                words.clear()
        return "\n\n".join(words)


def _extra_tools(supervisor: SubagentSupervisor, node: ThreadNode, agent: Agent) -> list[Tool]:
    """What a thread can do besides what its agent and its kit bring."""
    return [*subagent_tools(supervisor, node, agent), *skill_tools(supervisor, node, agent)]
