"""Sessions as a program uses them: start, send, run, stream, interrupt, answer, follow, fork."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, Unpack

from anyio.abc import TaskGroup
from msgspec import Struct, field

from mainspring.core import ids
from mainspring.core.content import Block, TextBlock
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, SessionExists
from mainspring.core.events import (
    ClientPayload,
    PermissionUpdate,
    PermissionUpdated,
    SessionCreated,
    UserCustomToolResult,
    UserInterrupt,
    UserMessage,
)
from mainspring.core.model import Delta, Message
from mainspring.core.sender import Origin, Sender
from mainspring.harness import hook_events
from mainspring.harness.authorizer import AllowAll
from mainspring.harness.budget import Budget
from mainspring.harness.event_sink import EventSink, ignore_event
from mainspring.harness.permissions.grant_state import check_updates
from mainspring.harness.state.session_projection import SessionProjection
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.harness.thread_context import ThreadContext, ignore_delta
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem
from mainspring.runtime.agent import Agent, AnyAgent, Output, check_deps
from mainspring.runtime.approvals import Answer
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.event_stream import EventStream
from mainspring.runtime.session.history import add_history
from mainspring.runtime.session.message_content import Content, content_blocks
from mainspring.runtime.session.pinned_agent import pin_agent
from mainspring.runtime.session.run_arguments import RunKeywords, StartKeywords
from mainspring.runtime.session.run_result import (
    FinalMessage,
    OnApproval,
    RunResult,
    ask_caller,
    result_of_log,
    run_result,
)
from mainspring.runtime.session.session_summary import answer_event
from mainspring.runtime.session_context import (
    Models,
    SessionContext,
    SetupRequest,
    ToolboxFactory,
    toolbox_without_tools,
)
from mainspring.runtime.subagents.handoff import run_conversation, thread_tools
from mainspring.runtime.subagents.skill_tool import skill_call_lookup
from mainspring.runtime.subagents.supervisor import open_supervisor

PROGRAM = Sender(kind="system", id="program")
"""The sender for programs that do not name one."""


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
        """`sender`: the sender of everything that this runtime submits to sessions. The mode in
        `options` is only the initial mode of a session: people may change it later."""
        self.log = log
        self.sender = sender
        self.models = models
        self.toolbox_factory = toolbox_factory or toolbox_without_tools(AllowAll())
        self.options = options or RunOptions()
        self.budget = budget or Budget()
        self.background: TaskGroup | None = None
        """The task group of streamed runs."""
        self.begun: set[str] = set()
        """Ids of the sessions that have run here."""

    async def start(
        self,
        agent: Agent[Output],
        message: Content | None = None,
        *,
        key: str | None = None,
        **options: Unpack[StartKeywords],
    ) -> Session[Output]:
        """Create a session of the agent, with a first message in its inbox if one is given.

        With a `key` of your choice, the same call after a crash gives you the same session, and the
        message is not sent twice.

        Raises:
            SessionExists: there is already one with this `session_id`.
        """
        agent = self._resolved(agent)
        metadata = options.get("metadata")
        created = SessionCreated(
            agent_name=agent.name,
            agent_version=agent.version,
            title=options.get("title"),
            metadata=dict(metadata) if metadata else None,
            origin=options.get("origin") or Origin(type="user", id=self.sender.id),
        )
        session_id = options.get("session_id")
        if key is not None:
            session_id = ids.stable_id(ids.SESSION, self.sender.id, key)
        try:
            row = await self.log.create(created, session_id=session_id, sender=self.sender)
        except SessionExists:
            if key is None:
                raise
            row = await self.log.session(session_id or "")
        session = Session(self, agent, row.id)
        if history := options.get("history"):
            await add_history(self.log, row.id, history)
        if message is not None:
            await session.send(message, client_id=None if key is None else "first")
        return session

    async def resume(self, agent: Agent[Output], session_id: str) -> Session[Output]:
        """Raises: SessionNotFound."""
        session = await self.log.session(session_id)
        return Session(self, self._resolved(agent), session.id)

    def attach(
        self, agent: Agent[Output], session_id: str, before: Session[Any] | None = None
    ) -> Session[Output]:
        """An existing session. `before`: an earlier object of the same session, so that only the
        rest of the log is read."""
        return Session(self, self._resolved(agent), session_id, before)

    def _resolved(self, agent: Agent[Output]) -> Agent[Output]:
        return replace(agent, model=self.models.resolve(agent.model))


class FoldedLog(Struct):
    """A log folded up to `seq`; the next run reads only what follows."""

    thread_tree: ThreadTree
    seq: int
    projection: SessionProjection = field(default_factory=SessionProjection)
    """It may end earlier: runs do not need it."""

    def apply(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.seq > self.seq:
                self.thread_tree.apply(event)
                self.seq = event.seq
            self.projection.apply(event)


class Session(Generic[Output]):
    """One session. Several objects, also in several processes, may refer to the same session."""

    def __init__(
        self,
        runtime: Runtime,
        agent: Agent[Output],
        session_id: str,
        before: Session[Any] | None = None,
    ) -> None:
        """`before`: an earlier object of the same session; only the rest of the log is read."""
        self.id = session_id
        self.agent = agent
        self.log = runtime.log
        self._runtime = runtime
        self._folded = None if before is None else before._folded
        self._has_started = before is not None and before._has_started
        self._has_end_hooks = before is not None and before._has_end_hooks

    async def send(
        self,
        message: Content,
        *,
        client_id: str | None = None,
        skill: str | None = None,
    ) -> InboxItem:
        """Put a message into the inbox; the process that runs the session reads it from there.

        `skill`: the skill that the message calls, if any. Its permissions apply until the run ends.
        """
        payload = UserMessage(content=await content_blocks(message), skill=skill)
        return await self.submit(payload, client_id)

    async def interrupt(self, *, client_id: str | None = None) -> InboxItem:
        """Stop the run at once; everything recorded so far is kept."""
        return await self.submit(UserInterrupt(), client_id)

    async def answer(
        self,
        call_id: str,
        result: Literal["allow", "deny"],
        *,
        message: str | None = None,
        form: Mapping[str, object] | None = None,
        choice: str | None = None,
        client_id: str | None = None,
    ) -> InboxItem:
        """Answer a call that waits for a person: for permission, or for the answer to a question.

        Raises:
            InvalidInput: `form` or `choice` does not fit the question.
        """
        answer = Answer(decision=result, text=message, form=form, choice=choice)
        return await self.submit(await answer_event(self.log, self.id, call_id, answer), client_id)

    async def permit(
        self, *updates: PermissionUpdate, call_id: str | None = None, client_id: str | None = None
    ) -> InboxItem:
        """Change the permissions of this session: rules, temporary grants, the mode.

        Raises:
            InvalidInput: an update is invalid; nothing has changed.
        """
        check_updates(updates)
        payload = PermissionUpdated(updates=updates, tool_use_id=call_id)
        return await self.submit(payload, client_id)

    async def settle(
        self,
        call_id: str,
        content: str | Sequence[Block],
        *,
        ok: bool = True,
        client_id: str | None = None,
    ) -> InboxItem:
        """Send the result of a call to one of the client's own tools."""
        blocks = (TextBlock(content),) if isinstance(content, str) else tuple(content)
        return await self.submit(
            UserCustomToolResult(custom_tool_use_id=call_id, content=blocks, is_error=not ok),
            client_id,
        )

    async def submit(self, payload: ClientPayload, client_id: str | None = None) -> InboxItem:
        sender = self._runtime.sender
        return await self.log.submit(self.id, payload, sender=sender, client_id=client_id)

    async def fork(self, *, at: int | None = None, title: str | None = None) -> Session[Output]:
        forked = await self.log.fork(self.id, at=at, title=title, sender=self._runtime.sender)
        return Session(self._runtime, self.agent, forked.id)

    async def events(self, *, after: int = 0) -> list[Event]:
        return await self.log.read(self.id, after=after)

    async def projection(self) -> SessionProjection:
        """The state of the session. The next run continues from what was read for it."""
        row = await self.log.session(self.id)
        folded = self._folded or FoldedLog(ThreadTree(row.thread_id), 0)
        after = min(folded.seq, folded.projection.seq)
        if row.head.seq > after:
            folded.apply(await self.log.read(self.id, after=after, limit=row.head.seq - after))
        self._folded = folded
        return folded.projection

    async def history(self) -> list[Message]:
        """The conversation so far, as the model sees it; `Runtime.start` takes it as `history=`."""
        row = await self.log.session(self.id)
        thread_tree = ThreadTree.of(await self.events(), row.thread_id)
        return thread_tree.active.thread.transcript.upcoming()

    def follow(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        return self.log.follow(self.id, after=after)

    def stream(
        self, message: Content | None = None, **arguments: Unpack[RunKeywords]
    ) -> EventStream[Output]:
        """Send a message, if one is given, and run the session: deltas as they arrive, events once
        they are in the log, and last the result.

        Raises:
            InvalidInput: the runtime was not opened by `open_runtime`.
        """
        background = self._runtime.background
        if background is None:
            raise InvalidInput("a stream needs a runtime that was opened by open_runtime()")

        async def run(
            emit: Callable[[Delta], None], tell: Callable[[Event], None]
        ) -> RunResult[Output]:
            if message is not None:
                await self.send(message)
            return await self.run(emit, tell=tell, **arguments) or await self.last_result()

        return EventStream(run, background, self.agent.output)

    async def run(
        self,
        emit: Callable[[Delta], None] = ignore_delta,
        *,
        tell: Callable[[Event], None] = ignore_event,
        **arguments: Unpack[RunKeywords],
    ) -> RunResult[Output] | None:
        """Run the session until it ends or waits; `None` if there was nothing to do.

        Safe to call after any crash, on any machine: it continues where the log ends. Tokens go to
        `emit` as they arrive, events to `tell` once they are in the log, in order with the tokens.

        Raises:
            LeaseHeld: another worker runs it.
            InvalidInput: a tool needs other `deps`.
        """
        deps, on_approval = arguments.get("deps"), arguments.get("on_approval")
        check_deps(self.agent, deps)
        result = await self._run(emit, tell, deps)
        while (
            on_approval is not None
            and (result is None or result.reason == "requires_action")
            and await self._ask(on_approval)
        ):
            result = await self._run(emit, tell, deps) or result
        return result

    async def end(self, reason: str = "other", *, is_begun: bool = False) -> None:
        """Run the `SessionEnd` hooks once, when this process no longer continues the session. Does
        nothing if this process has not run it, unless `is_begun` says that another one has.

        Raises:
            LeaseHeld: another worker continues it.
        """
        if self._has_end_hooks or is_begun:
            self._has_end_hooks = False
            await self._run(ignore_delta, ignore_event, None, end_reason=reason)

    async def last_result(self) -> RunResult[Output]:
        """The result of the last run, from the log."""
        row = await self.log.session(self.id)
        return result_of_log(self.agent, self.id, await self.events(), row.thread_id)

    async def _ask(self, on_approval: OnApproval) -> bool:
        """Let the caller answer waiting calls. Returns whether it answered any."""
        row = await self.log.session(self.id)
        answers = await ask_caller(ThreadTree.of(await self.events(), row.thread_id), on_approval)
        for call_id, (result, text) in answers.items():
            await self.answer(call_id, result, message=text)
        return bool(answers)

    async def _run(
        self,
        emit: Callable[[Delta], None],
        tell: Callable[[Event], None],
        deps: object,
        end_reason: str | None = None,
    ) -> RunResult[Output] | None:
        runtime = self._runtime
        async with hold_session(self.log, self.id) as writer:
            folded, self._folded = self._folded or FoldedLog(ThreadTree(writer.thread_id), 0), None
            if new := writer.head.seq - folded.seq:
                for event in await self.log.read(self.id, after=folded.seq, limit=new):
                    folded.thread_tree.apply(event)
            tree, main = folded.thread_tree, folded.thread_tree.main
            final_message = FinalMessage(tree.active.id, tell)
            options = runtime.options
            if options.agent is None and self.agent.folder is not None:
                options = replace(options, agent=self.agent.folder)
            if self.id in runtime.begun:
                options = replace(options, mode=None)
            any_agent: AnyAgent = self.agent  # nothing below depends on its output type
            request = SetupRequest(
                agent=any_agent, thread=main.thread, writer=writer, log=self.log, options=options
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
                        writer=writer, thread_tree=tree, on_event=final_message.on_event
                    ),
                    budget=replace(runtime.budget, agent=self.agent.name),
                    deps=deps,
                )
                async with open_supervisor(session, thread_tools) as supervisor:
                    context = supervisor.thread_factory.main_context(emit)
                    if agent.skills:
                        context.skill_called = skill_call_lookup(agent, self.id, main.thread)
                    context.note(*facts, *toolbox.facts)
                    if end_reason is None:
                        await self._begin(context)
                        run_end = await run_conversation(supervisor, context, emit)
                        context.note(*tree.utility.due())
                    else:
                        await context.run_hooks(hook_events.session_ended(end_reason))
                        run_end = None
                    await context.event_sink.commit()
            self._folded = FoldedLog(tree, writer.head.seq, folded.projection)
        if run_end is None:
            return None
        return run_result(self.agent, self.id, run_end, tree, final_message)

    async def _begin(self, context: ThreadContext) -> None:
        """Run the `SessionStart` hooks, once in every process that runs the session."""
        if self._has_started:
            return
        self._has_started = True
        self._has_end_hooks = "SessionEnd" in context.toolbox.hook_events
        source = "resume" if context.thread.turns else "startup"
        await context.run_hooks(hook_events.session_started(source, self.agent.model))
