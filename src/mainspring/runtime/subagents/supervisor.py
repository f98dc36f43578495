"""Supervises the subagent threads of a running session: spawns, runs, reports and stops them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.core.events import (
    KnownPayload,
    StatusIdle,
    ThreadCreated,
    ThreadMessageSent,
    ThreadStopped,
    UserInterrupt,
)
from mainspring.core.tool import Tool
from mainspring.harness import hook_events
from mainspring.harness.loop import run
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.state.thread_tree import ThreadNode
from mainspring.harness.stop_reasons import Ended, stop_reason
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.tool_calls.crash_recovery import closing_events
from mainspring.log.task_groups import retry_unavailable, unwrap_single_error
from mainspring.runtime.agent import Agent
from mainspring.runtime.session_context import SessionContext
from mainspring.runtime.subagents.thread_factory import ThreadFactory
from mainspring.runtime.subagents.thread_report import report_text
from mainspring.runtime.subagents.thread_worktrees import ThreadWorktrees, with_worktree_note

ToolsOfThread: TypeAlias = Callable[["SubagentSupervisor", ThreadNode, Agent], Sequence[Tool]]


class _RunningThread(Struct):
    """A thread that runs in this process, or is about to."""

    context: ThreadContext | None = None
    ended: anyio.Event | None = None


class SubagentSupervisor:
    """The `SiblingThreads` of every thread of the session. Open it with `open_supervisor`."""

    def __init__(
        self, session_context: SessionContext, extra_tools: ToolsOfThread, group: TaskGroup
    ) -> None:
        self.thread_factory = ThreadFactory(
            session_context=session_context,
            extra_tools=partial(extra_tools, self),
            siblings=self,
        )
        self.main_agent = session_context.agent
        self.thread_tree = session_context.event_sink.thread_tree
        self._event_sink = session_context.event_sink
        self._group = group
        self._foreground = self.thread_tree.main.id
        """The thread that runs for the caller: the main one, or one that it was handed off to."""
        self._running: dict[str, _RunningThread] = {}
        self._spawning: set[str] = set()
        """Ids of threads that are being created."""
        self._changed = anyio.Event()
        self._has_run = False
        """Whether a background thread has run."""
        self.worktrees = ThreadWorktrees(
            worktrees=session_context.toolbox.worktrees,
            session_id=session_context.event_sink.writer.session_id,
            note=self._note,
        )

    def is_live(self, thread_id: str) -> bool:
        return thread_id in self._running

    @property
    def is_full(self) -> bool:
        """Whether no further subagent may run; the main thread does not count."""
        return len(self._running.keys() | self._spawning) > self.main_agent.max_at_once

    def is_answerable(self, call: OpenCall) -> bool:
        child = self.thread_tree.created_by(call.id)
        return child is not None and self._can_continue(child)

    def abandon(self, call: OpenCall) -> None:
        child = self.thread_tree.created_by(call.id)
        if child is not None and self.thread_tree.is_awaited(child):
            self._close(child)

    def on_inbox(self, events: Iterable[Event]) -> None:
        """Interrupt and resume the threads that these external events concern."""
        payloads = [event.payload for event in events]
        if any(isinstance(item, UserInterrupt) and not item.session_thread_id for item in payloads):
            self._halt_all()
        if payloads:
            self._reschedule()

    def context_of(self, node: ThreadNode) -> ThreadContext | None:
        """The context of a thread, if it runs in this process."""
        running = self._running.get(node.id)
        return None if running is None else running.context

    async def spawn(
        self, parent: ThreadNode, created: ThreadCreated, prompt: str, *facts: KnownPayload
    ) -> ThreadNode:
        """Create the thread of a call, with its task and `facts` in its log. A repeated call gets
        the same thread.

        Raises:
            ToolEnvironmentError: there is no folder for it to work in.
        """
        existing = self.thread_tree.nodes.get(created.session_thread_id)
        if existing is not None:
            return existing
        self._spawning.add(created.session_thread_id)
        try:
            worktree = await self.worktrees.open_for(
                created, is_within=self._is_in_worktree(parent)
            )
            self._note(parent.id, created)
            node = self.thread_tree.nodes[created.session_thread_id]
            task = self.thread_factory.task_of(node, parent, with_worktree_note(prompt, worktree))
            self._note(node.id, *worktree, task, *facts)
            await self._event_sink.commit()
        finally:
            self._spawning.discard(created.session_thread_id)
        return node

    async def wait_for(self, node: ThreadNode) -> None:
        """Run a thread in the task of the caller until it ends or waits."""
        self._running[node.id] = _RunningThread()
        await self._work(node)

    def start_in_background(self, node: ThreadNode) -> None:
        """Run a thread concurrently; its parent gets a message when it ends."""
        if node.id not in self._running:
            self._running[node.id] = _RunningThread()
            self._has_run = True
            self._group.start_soon(self._in_background, node)

    def send(self, sender: ThreadNode, to: ThreadNode, text: str) -> None:
        """Send a message to a thread, and start the thread if it can run."""
        content = (TextBlock(text),)
        self._note(
            sender.id,
            ThreadMessageSent(to_session_thread_id=to.id, to_agent_name=to.name, content=content),
        )
        self._reschedule()

    async def stop(self, node: ThreadNode, by: ThreadNode) -> None:
        """End a thread and all below it; messages to it stay unanswered."""
        messages = self.thread_tree.messages_for(node.id)
        self._note(node.id, *messages, ThreadStopped(by_session_thread_id=by.id))
        running = self._running.get(node.id)
        if running is None:
            self._close(node)
        else:
            running.ended = running.ended or anyio.Event()
            _cancel(running)
            await running.ended.wait()
        for child in self.thread_tree.children(node.id):
            if (
                self.is_live(child.id)
                or child.thread.unsettled_calls()
                or self._can_continue(child)
            ):
                await self.stop(child, by)
        await self._event_sink.commit()

    def pending_calls_of(self, node: ThreadNode) -> list[str]:
        """Calls of a thread and of all below it that a person must answer."""
        call_ids: list[str] = []
        for call in node.thread.unsettled_calls():
            child = self.thread_tree.created_by(call.id)
            if child is not None and self.thread_tree.is_awaited(child):
                call_ids += self.pending_calls_of(child)
            elif call.wants_answer:
                call_ids.append(call.id)
        return [*call_ids, *self.pending_calls_below(node.id)]

    def pending_calls_below(self, thread_id: str) -> tuple[str, ...]:
        background = filter(self._runs_in_background, self.thread_tree.children(thread_id))
        return tuple(call_id for item in background for call_id in self.pending_calls_of(item))

    def has_unfinished_children(self, thread_id: str) -> bool:
        background = filter(self._runs_in_background, self.thread_tree.children(thread_id))
        return any(item.thread.running or not item.is_reported for item in background)

    async def wait_for_children(self, thread_id: str) -> bool:
        self._reschedule()
        is_alone = not any(
            item.id in self._running for item in self.thread_tree.children(thread_id)
        )
        if is_alone and not self.thread_tree.messages_for(thread_id):
            return False
        await self._wait_for_change(thread_id)
        return True

    async def run(self, main: ThreadContext) -> Ended | None:
        """Run the thread of the conversation until all threads have ended or wait."""
        self._running.pop(self._foreground, None)
        self._foreground = main.thread.id
        self._running[main.thread.id] = _RunningThread(main)
        self._reschedule()
        run_end = await run(main)
        while self._is_busy(main):
            await self._wait_for_change(main.thread.id)
            run_end = await run(main) or run_end
        return await self._with_pending_calls(main, run_end)

    def _is_busy(self, main: ThreadContext) -> bool:
        self._reschedule()
        return len(self._running) > 1 or bool(self.thread_tree.messages_for(main.thread.id))

    async def _wait_for_change(self, waiting_id: str) -> None:
        """Wait until a thread ends, this one is interrupted or a message for it arrives; the main
        thread also waits on behalf of threads that are not running."""
        if self.thread_tree.messages_for(waiting_id):
            return
        changed, context = self._changed, self._running[waiting_id].context
        wait_for_inbox = partial(
            self._event_sink.writer.wait_for_inbox,
            accepts=lambda thread_id: thread_id == waiting_id or not self.is_live(thread_id),
            addressee=self.thread_tree.addressee,
        )
        async with anyio.create_task_group() as waits:

            async def until(wait: Callable[[], Awaitable[object]]) -> None:
                await wait()
                waits.cancel_scope.cancel()

            if waiting_id == self._foreground:
                waits.start_soon(until, partial(retry_unavailable, wait_for_inbox))
            waits.start_soon(until, changed.wait)
            if context is not None:
                waits.start_soon(until, context.interrupt_requested.wait)

    async def _with_pending_calls(self, main: ThreadContext, run_end: Ended | None) -> Ended | None:
        """Add the pending calls of background threads to the result of the main thread."""
        if run_end is None and not self._has_run:
            return None
        pending = self.pending_calls_below(main.thread.id)
        call_ids = run_end.waiting_for if run_end is not None else ()
        if not pending or set(pending) <= set(call_ids):
            return run_end
        combined = Ended("requires_action", waiting_for=(*call_ids, *pending))
        await main.note_idle(StatusIdle(stop_reason=stop_reason(combined), reason=combined.reason))
        return combined

    def _runs_in_background(self, node: ThreadNode) -> bool:
        """Whether it is neither the main thread, nor one that a call waits for, nor one that has
        the conversation."""
        created = node.created_event
        if created is None or created.mode == "handoff":
            return False
        return not self.thread_tree.is_awaited(node)

    def _reschedule(self) -> None:
        """Start threads that can continue, and send reports that a crash has prevented."""
        for node in list(self.thread_tree.nodes.values()):
            if node.id in self._running or not self._runs_in_background(node):
                continue
            if node.thread.running or self._can_continue(node) or self._needs_cleanup(node):
                self.start_in_background(node)
            else:
                self._report(node)

    def _can_continue(self, node: ThreadNode) -> bool:
        thread = node.thread
        is_open = thread.last_reason in (None, "requires_action")  # otherwise it has already ended
        return (
            thread.interrupted
            or (is_open and not thread.is_answered and not thread.unsettled_calls())
            or bool(self.thread_tree.messages_for(node.id))
            or any(
                item.is_answered or self.is_answerable(item) for item in thread.unsettled_calls()
            )
        )

    def _needs_cleanup(self, node: ThreadNode) -> bool:
        """Whether the changes in its worktree have not been looked up yet."""
        is_known = node.worktree is None or node.id in self.worktrees.changed
        return not is_known and _has_ended(node) and not node.is_reported

    async def _in_background(self, node: ThreadNode) -> None:
        await self._work(node)
        self._report(node)
        await self._event_sink.commit()
        self._changed.set()
        self._changed = anyio.Event()

    async def _work(self, node: ThreadNode) -> None:
        running = self._running[node.id]
        try:
            if await self._has_workspace(node):
                await self._run(node, running)
                if _has_ended(node) and not self.has_others_below(node):
                    await self.worktrees.discard_if_unchanged(node)
        finally:
            self._running.pop(node.id, None)
            if running.ended is not None:
                running.ended.set()

    async def _has_workspace(self, node: ThreadNode) -> bool:
        """Whether it has a folder to work in; if not, it ends and its parent gets the reason."""
        try:
            await self.worktrees.reopen(node, is_within=self._is_in_worktree(self._parent(node)))
        except ToolEnvironmentError as error:
            self._fail(node, error)
            return False
        return True

    async def _run(self, node: ThreadNode, running: _RunningThread) -> None:
        is_first = not node.thread.running and node.thread.turns == 0
        async with AsyncExitStack() as stack:
            try:
                context = await stack.enter_async_context(self.thread_factory.open_context(node))
            except (ToolEnvironmentError, InvalidInput) as error:
                return self._fail(node, error)
            running.context = context
            if is_first and node.name is not None:
                await context.run_hooks(hook_events.subagent_started(node.name))
            await run(context)

    def _fail(self, node: ThreadNode, error: ToolEnvironmentError | InvalidInput) -> None:
        """End a thread that cannot be set up, and send its parent the reason."""
        self._note(node.id, *self.thread_tree.messages_for(node.id))
        if self._close(node):
            why = f"{node.name} {node.id} cannot continue: {error}"
            self.send(node, self._parent(node), why)

    def _is_in_worktree(self, node: ThreadNode) -> bool:
        """Whether a thread works in a worktree, its own or that of an ancestor."""
        return any(item.worktree is not None for item in self.thread_tree.with_ancestors(node))

    def has_others_below(self, node: ThreadNode) -> bool:
        """Whether a thread below this one is running."""
        running = [self.thread_tree.nodes[item] for item in self._running if item != node.id]
        with_ancestors = self.thread_tree.with_ancestors
        return any(above is node for item in running for above in with_ancestors(item))

    def _report(self, node: ThreadNode) -> None:
        """Send the result of an ended thread to its parent, once."""
        if _has_ended(node) and not node.is_reported and node.parent_id is not None:
            report = report_text(node, self.worktrees.describe(node))
            self.send(node, self._parent(node), report)

    def _parent(self, node: ThreadNode) -> ThreadNode:
        """The parent of a thread that is not the main one."""
        return self.thread_tree.nodes[node.parent_id or self.thread_tree.main.id]

    def _halt_all(self) -> None:
        for thread_id, running in self._running.items():
            if thread_id != self._foreground:
                _cancel(running)

    def _close(self, node: ThreadNode) -> bool:
        """Record the end of a thread that is not running; False if it had already ended."""
        thread = node.thread
        if not thread.running and thread.is_answered and not thread.unsettled_calls():
            return False
        for call in thread.unsettled_calls():
            self.abandon(call)
        self._note(node.id, *closing_events(thread))
        return True

    def _note(self, thread_id: str, *payloads: KnownPayload) -> None:
        for event in self._event_sink.writer.stage(*payloads, thread_id=thread_id):
            self._event_sink.apply(event)


def _has_ended(node: ThreadNode) -> bool:
    """Whether its last run has ended and waits for nobody."""
    return node.thread.last_reason not in (None, "requires_action")


def _cancel(running: _RunningThread) -> None:
    if running.context is not None and running.context.thread.interrupted:
        running.context.interrupt()


@asynccontextmanager
async def open_supervisor(
    session_context: SessionContext, extra_tools: ToolsOfThread
) -> AsyncGenerator[SubagentSupervisor, None]:
    """Run subagent threads concurrently until the block ends."""
    with unwrap_single_error():
        async with anyio.create_task_group() as group:
            yield SubagentSupervisor(session_context, extra_tools, group)
