"""Sessions as a program uses them: start, send, run, interrupt, answer, follow, fork."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from msgspec import Struct

from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import (
    AgentCustomToolUse,
    AgentMcpToolUse,
    AgentMessage,
    AgentToolUse,
    ClientPayload,
    PermissionUpdate,
    PermissionUpdated,
    SessionCreated,
    Usage,
    UserCustomToolResult,
    UserInterrupt,
    UserMessage,
    UserToolConfirmation,
)
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
from mainspring.harness.thread_context import ignore_delta
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.lease import hold_session
from mainspring.runtime.session.pinned_agent import pin_agent
from mainspring.runtime.session_context import (
    Models,
    SessionContext,
    SetupRequest,
    ToolboxFactory,
    toolbox_without_tools,
)
from mainspring.runtime.subagents.skill_tool import skill_call_lookup, skill_tools
from mainspring.runtime.subagents.subagent_tools import subagent_tools
from mainspring.runtime.subagents.supervisor import SubagentSupervisor, open_supervisor

PROGRAM = Sender(kind="system", id="program")
"""The sender for programs that do not name one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a run; turns, usage and cost are totals of the session."""

    session_id: str
    reason: EndReason
    text: str
    """The last message of the agent in this run."""
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
        options: RunOptions | None = None,
        budget: Budget | None = None,
        sender: Sender = PROGRAM,
    ) -> None:
        """`sender`: in whose name this runtime sends to sessions. The mode in `options` is only the
        first mode of a session here: people may change it later."""
        self.log = log
        self.sender = sender
        self.models = models
        self.toolbox_factory = toolbox_factory or toolbox_without_tools(AllowAll())
        self.options = options or RunOptions()
        self.budget = budget or Budget()
        self.begun: set[str] = set()
        """Ids of the sessions that have run here."""

    async def start(
        self,
        agent: Agent,
        message: str | None = None,
        *,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        origin: Origin | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session of the agent, with a first message in its inbox if one is given.

        `origin`: what creates the session, if not the sender of this runtime. With `session_id` a
        retry does not create a second one.

        Raises: SessionExists.
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
            session_id=session_id,
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
        """A session that exists. `before` is an earlier object of the same session: then only the
        rest of the log is read."""
        return Session(self, self._resolved(agent), session_id, before)

    def _resolved(self, agent: Agent) -> Agent:
        return replace(agent, model=self.models.resolve(agent.model))


class FoldedLog(Struct, frozen=True):
    """A log folded up to `seq`; the next run reads only what follows."""

    thread_tree: ThreadTree
    seq: int


class Session:
    """One session. Several objects, also in several processes, may refer to the same session."""

    def __init__(
        self, runtime: Runtime, agent: Agent, session_id: str, before: Session | None = None
    ) -> None:
        """`before`: an earlier object of the same session; only the rest of the log is read."""
        self.id = session_id
        self.agent = agent
        self.log = runtime.log
        self._runtime = runtime
        self._folded = None if before is None else before._folded
        self._has_started = before is not None and before._has_started

    async def send(
        self,
        message: str | Sequence[Block],
        *,
        client_id: str | None = None,
        skill: str | None = None,
    ) -> InboxItem:
        """Put a message into the inbox; the process that runs the session reads it from there.

        `skill`: the skill that the message calls, if any. Its permissions apply until the run ends.
        """
        content = (TextBlock(message),) if isinstance(message, str) else tuple(message)
        payload = UserMessage(content=content, skill=skill)
        return await self._submit(payload, client_id)

    async def interrupt(self, *, client_id: str | None = None) -> InboxItem:
        """Stop the run at once; everything recorded so far is kept."""
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
        """Change the permissions of this session: rules, temporary grants, the mode.

        Raises:
            InvalidInput: an update is invalid; nothing has changed.
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
        return await self.log.submit(self.id, payload, sender=sender, client_id=client_id)

    async def fork(self, *, at: int | None = None, title: str | None = None) -> Session:
        forked = await self.log.fork(self.id, at=at, title=title, sender=self._runtime.sender)
        return Session(self._runtime, self.agent, forked.id)

    async def events(self, *, after: int = 0) -> list[Event]:
        return await self.log.read(self.id, after=after)

    def follow(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        return self.log.follow(self.id, after=after)

    async def run(
        self,
        emit: Callable[[Delta], None] = ignore_delta,
        *,
        tell: Callable[[Event], None] = ignore_event,
    ) -> Result | None:
        """Run the session until it ends or waits; `None` if there was nothing to do.

        Safe to call after any crash, on any machine: it continues where the log ends. Tokens go to
        `emit` as they arrive, events to `tell` once they are in the log, in order with the tokens.

        Raises:
            LeaseHeld: another worker runs it.
        """
        runtime = self._runtime
        async with hold_session(self.log, self.id) as writer:
            folded, self._folded = self._folded or FoldedLog(ThreadTree(writer.thread_id), 0), None
            if new := writer.head.seq - folded.seq:
                for event in await self.log.read(self.id, after=folded.seq, limit=new):
                    folded.thread_tree.apply(event)
            main = folded.thread_tree.main
            final_message = _FinalMessage(main.id, tell)
            options = runtime.options
            if self.id in runtime.begun:
                options = replace(options, mode=None)
            request = SetupRequest(
                agent=self.agent,
                thread=main.thread,
                writer=writer,
                log=self.log,
                options=options,
            )
            window = runtime.models.facts(self.agent.model).window
            agent, facts = await pin_agent(request, window=window)
            runtime.begun.add(self.id)
            async with runtime.toolbox_factory(replace(request, agent=agent)) as toolbox:
                session = SessionContext(
                    agent=agent,
                    toolbox=toolbox,
                    options=options,
                    log=self.log,
                    models=runtime.models,
                    event_sink=EventSink(
                        writer=writer,
                        thread_tree=folded.thread_tree,
                        on_event=final_message.on_event,
                    ),
                    budget=replace(runtime.budget, agent=self.agent.name),
                )
                async with open_supervisor(session, _extra_tools) as supervisor:
                    context = supervisor.thread_factory.main_context(emit)
                    if agent.skills:
                        context.skill_called = skill_call_lookup(agent, self.id, main.thread)
                    context.note(*facts, *toolbox.facts)
                    if not self._has_started:  # once in every process that runs the session
                        self._has_started = True
                        source = "resume" if main.thread.turns else "startup"
                        await context.run_hooks(
                            hook_events.session_started(source, self.agent.model)
                        )
                    ended = await supervisor.run(context)
            self._folded = FoldedLog(folded.thread_tree, writer.head.seq)
        if ended is None:
            return None
        return Result(
            session_id=self.id,
            reason=ended.reason,
            text=final_message.text,
            turns=main.thread.turns,
            usage=main.spend_account.usage,
            cost_usd=main.spend_account.spending.cost_usd,
            detail=ended.detail,
            waiting_for=ended.waiting_for,
        )


class _FinalMessage:
    """The last message of the agent in a run, as its events tell it."""

    def __init__(self, thread_id: str, tell: Callable[[Event], None]) -> None:
        self._thread_id = thread_id
        self._tell = tell
        self._texts: list[str] = []

    def on_event(self, event: Event) -> None:
        if event.thread_id == self._thread_id:
            if isinstance(event.payload, AgentMessage):
                self._texts.append(plain_text(event.payload.content))
            elif isinstance(event.payload, AgentToolUse | AgentMcpToolUse | AgentCustomToolUse):
                self._texts.clear()
        self._tell(event)

    @property
    def text(self) -> str:
        return "\n\n".join(self._texts)


def _extra_tools(supervisor: SubagentSupervisor, node: ThreadNode, agent: Agent) -> list[Tool]:
    """The tools of every thread besides those of its agent and its toolbox."""
    return [*subagent_tools(supervisor, node, agent), *skill_tools(supervisor, node, agent)]
