"""Supervises the subagent threads of a running session: spawns, runs, reports and stops them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
from anyio.abc import TaskGroup

from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event, KnownPayload
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.core.events import StatusIdle, ThreadCreated, ThreadMessageSent, UserInterrupt
from mainspring.core.facts import ThreadStopped
from mainspring.harness import hook_events
from mainspring.harness.crash_recovery import closing_events
from mainspring.harness.loop import run
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.state.thread_tree import ThreadNode, ThreadTree
from mainspring.harness.stop_reasons import Ended, stop_reason
from mainspring.harness.thread_context import ThreadContext
from mainspring.log.task_groups import retry_unavailable, run_in_background, unwrap_single_error
from mainspring.runtime.agent import Agent
from mainspring.runtime.subagents.thread_factory import ThreadFactory
from mainspring.runtime.subagents.thread_report import report_text
from mainspring.runtime.subagents.thread_worktrees import ThreadWorktrees, with_worktree_note


@dataclass(slots=True)
class _RunningThread:
    """A thread that is run in this process, or is about to be."""

    context: ThreadContext | None = None
    left: anyio.Event | None = None


class SubagentSupervisor:
    """The `SiblingThreads` of every thread of the session. Open it with `open_supervisor`."""

    def __init__(self, thread_factory: ThreadFactory, group: TaskGroup) -> None:
        self._thread_factory = thread_factory
        self._record = thread_factory.session_context.event_sink
        self._group = group
        self._posts: dict[str, _RunningThread] = {}
        self._expected: set[str] = set()  # threads that are being created
        self._news = anyio.Event()
        self._has_run = False  # whether a thread besides the main one was run
        self.worktrees = ThreadWorktrees(
            worktrees=thread_factory.toolbox.worktrees,
            session_id=thread_factory.session_context.session_id,
            note=self._note,
        )

    @property
    def thread_tree(self) -> ThreadTree:
        return self._record.thread_tree

    def main_context(self) -> ThreadContext:
        return self._thread_factory.main_context(self)

    def is_live(self, thread_id: str) -> bool:
        return thread_id in self._posts

    @property
    def main_agent(self) -> Agent:
        """The main thread's agent."""
        return self._thread_factory.agent

    @property
    def is_full(self) -> bool:
        """Whether nobody more may be called; the main thread does not count."""
        return len(self._posts.keys() | self._expected) > self.main_agent.max_at_once

    def is_answerable(self, call: OpenCall) -> bool:
        called = self.thread_tree.created_by(call.id)
        return called is not None and self._can_go_on(called)

    def abandon(self, call: OpenCall) -> None:
        called = self.thread_tree.created_by(call.id)
        if called is not None and self.thread_tree.is_awaited(called):
            self._close(called)

    def on_inbox(self, events: Iterable[Event]) -> None:
        """Something came from outside: who has been stopped, and who can go on."""
        came = [event.payload for event in events]
        if any(isinstance(item, UserInterrupt) and not item.session_thread_id for item in came):
            self._halt_all()
        if came:
            self._reschedule()

    def context_of(self, node: ThreadNode) -> ThreadContext | None:
        """Where a thread sits, if it is run in this process."""
        post = self._posts.get(node.id)
        return None if post is None else post.context

    async def spawn(
        self, parent: ThreadNode, birth: ThreadCreated, prompt: str, *facts: KnownPayload
    ) -> ThreadNode:
        """The thread of a call, with its task; the same one if the call is made again. `facts` are
        what its log has to know besides.

        Raises:
            HandsError: there is no place for it to work in.
        """
        known = self.thread_tree.nodes.get(birth.session_thread_id)
        if known is not None:
            return known
        self._expected.add(birth.session_thread_id)
        try:
            lodging = await self.worktrees.open_for(birth, is_within=self._is_in_worktree(parent))
            self._note(parent.id, birth)
            born = self.thread_tree.nodes[birth.session_thread_id]
            task = self._thread_factory.task_of(born, parent, with_worktree_note(prompt, lodging))
            self._note(born.id, *lodging, task, *facts)
            await self._record.commit()
        finally:
            self._expected.discard(birth.session_thread_id)  # it takes its post now, or never
        return born

    async def wait_for(self, node: ThreadNode) -> None:
        """Run a thread here and now, until it ends or waits."""
        self._posts[node.id] = _RunningThread()
        await self._work(node)

    def start_in_background(self, node: ThreadNode) -> None:
        """Run a thread beside all others; its parent gets a message when it ends."""
        if node.id not in self._posts:
            self._posts[node.id] = _RunningThread()
            self._has_run = True
            self._group.start_soon(self._in_background, node)

    def send(self, sender: ThreadNode, to: ThreadNode, text: str) -> None:
        """Put a message into a thread's mail, and see that it is read."""
        content = (TextBlock(text),)
        self._note(
            sender.id,
            ThreadMessageSent(to_session_thread_id=to.id, to_agent_name=to.name, content=content),
        )
        self._reschedule()

    async def stop(self, node: ThreadNode, by: ThreadNode) -> None:
        """End a thread and all below it, as they are; what it was sent, it need not answer."""
        mail = self.thread_tree.messages_for(node.id)
        self._note(node.id, *mail, ThreadStopped(by_session_thread_id=by.id))
        post = self._posts.get(node.id)
        if post is None:
            self._close(node)
        else:
            post.left = post.left or anyio.Event()
            _cancel(post)
            await post.left.wait()
        for child in self.thread_tree.children(node.id):
            if self.is_live(child.id) or child.thread.unsettled_calls() or self._can_go_on(child):
                await self.stop(child, by)
        await self._record.commit()

    def pending_calls_of(self, node: ThreadNode) -> list[str]:
        """Calls of a thread, and of all below it, that people must answer."""
        found: list[str] = []
        for call in node.thread.unsettled_calls():
            called = self.thread_tree.created_by(call.id)
            if called is not None and self.thread_tree.is_awaited(called):
                found += self.pending_calls_of(called)
            elif call.wants_answer:
                found.append(call.id)
        return [*found, *self.pending_calls_below(node.id)]

    def pending_calls_below(self, thread_id: str) -> tuple[str, ...]:
        apart = filter(self._runs_in_background, self.thread_tree.children(thread_id))
        return tuple(call_id for item in apart for call_id in self.pending_calls_of(item))

    def has_unfinished_children(self, thread_id: str) -> bool:
        apart = filter(self._runs_in_background, self.thread_tree.children(thread_id))
        return any(item.thread.running or not item.is_reported for item in apart)

    async def wait_for_children(self, thread_id: str) -> bool:
        self._reschedule()
        is_alone = not any(
            child.id in self._posts for child in self.thread_tree.children(thread_id)
        )
        if is_alone and not self.thread_tree.messages_for(thread_id):
            return False
        await self._until_news(thread_id)
        return True

    async def run(self, main: ThreadContext) -> Ended | None:
        """Run the main thread, and go on until all threads have ended or wait."""
        self._posts[main.thread.id] = _RunningThread(main)
        async with run_in_background(partial(retry_unavailable, self._watch_interrupts)):
            self._reschedule()
            ended = await run(main)
            while self._is_busy(main):
                await self._until_news(main.thread.id)
                ended = await run(main) or ended
            return await self._with_pending_calls(main, ended)

    async def _watch_interrupts(self) -> None:
        """Listen for interrupts of single threads, for all of them: each would be woken by every
        commit of any other."""

        def heed(thread_id: str) -> bool:
            post = self._posts.get(thread_id)
            if post is not None and post.context is not None and thread_id != self._main:
                post.context.interrupt_requested.set()  # it takes the interrupt in itself
            return False

        await self._record.writer.wait_for_inbox("user.interrupt", is_for=heed)

    def _is_busy(self, main: ThreadContext) -> bool:
        self._reschedule()
        return len(self._posts) > 1 or bool(self.thread_tree.messages_for(main.thread.id))

    async def _until_news(self, own: str) -> None:
        """Until a thread has ended or this one is interrupted, or something came for it; the main
        one hears for those who do not listen themselves, too."""
        if self.thread_tree.messages_for(own):
            return
        news, context = self._news, self._posts[own].context
        hear = partial(
            self._record.writer.wait_for_inbox,
            is_for=lambda each: each == own or not self.is_live(each),
            addressee=self.thread_tree.addressee,
        )
        async with anyio.create_task_group() as first:

            async def until(happens: Callable[[], Awaitable[object]]) -> None:
                await happens()
                first.cancel_scope.cancel()

            if own == self._main:
                first.start_soon(until, partial(retry_unavailable, hear))
            first.start_soon(until, news.wait)
            if context is not None:
                first.start_soon(until, context.interrupt_requested.wait)

    @property
    def _main(self) -> str:
        return self.thread_tree.main.id

    async def _with_pending_calls(self, main: ThreadContext, ended: Ended | None) -> Ended | None:
        """Threads beside the main one may wait for people when it does not."""
        if ended is None and not self._has_run:
            return None
        waiting = self.pending_calls_below(self._main)
        known = ended.waiting_for if ended is not None else ()
        if not waiting or set(waiting) <= set(known):
            return ended
        whole = Ended("requires_action", waiting_for=(*known, *waiting))
        await main.note_idle(StatusIdle(stop_reason=stop_reason(whole), reason=whole.reason))
        return whole

    def _runs_in_background(self, node: ThreadNode) -> bool:
        """Neither the main thread nor one that another's call waits for."""
        return node.created_event is not None and not self.thread_tree.is_awaited(node)

    def _reschedule(self) -> None:
        """Set to work who can go on, and have those report who could not before a crash."""
        for member in list(self.thread_tree.nodes.values()):
            if not self._runs_in_background(member) or member.id in self._posts:
                continue
            if member.thread.running or self._can_go_on(member) or self._needs_cleanup(member):
                self.start_in_background(member)
            else:
                self._report(member)

    def _can_go_on(self, node: ThreadNode) -> bool:
        thread = node.thread
        is_open = thread.last_reason in (None, "requires_action")  # else it has come to an end
        return (
            thread.interrupted
            or (is_open and not thread.is_answered and not thread.unsettled_calls())
            or bool(self.thread_tree.messages_for(node.id))
            or any(
                call.is_answered or self.is_answerable(call) for call in thread.unsettled_calls()
            )
        )

    def _needs_cleanup(self, node: ThreadNode) -> bool:
        """Whether nobody has looked yet what it left in its worktree."""
        is_known = node.worktree is None or node.id in self.worktrees.changed
        return not is_known and _has_ended(node) and not node.is_reported

    async def _in_background(self, node: ThreadNode) -> None:
        await self._work(node)
        self._report(node)
        await self._record.commit()
        self._news.set()
        self._news = anyio.Event()

    async def _work(self, node: ThreadNode) -> None:
        post = self._posts[node.id]
        try:
            if await self._has_workspace(node):
                await self._run(node, post)
                if _has_ended(node) and not self.has_others_below(node):
                    await self.worktrees.discard_if_unchanged(node)
        finally:
            self._posts.pop(node.id, None)
            if post.left is not None:
                post.left.set()

    async def _has_workspace(self, node: ThreadNode) -> bool:
        """Whether it has a place to work in; if not, it ends, and its parent is told why."""
        try:
            await self.worktrees.reopen(node, is_within=self._is_in_worktree(self._parent(node)))
        except ToolEnvironmentError as error:
            self._fail(node, error)
            return False
        return True

    async def _run(self, node: ThreadNode, running_thread: _RunningThread) -> None:
        is_first = not node.thread.running and node.thread.turns == 0
        async with AsyncExitStack() as spec:
            try:
                context = await spec.enter_async_context(
                    self._thread_factory.open_context(node, self)
                )
            except (ToolEnvironmentError, InvalidInput) as error:
                return self._fail(node, error)
            running_thread.context = context
            if is_first and node.name is not None:
                await context.run_hooks(hook_events.subagent_started(node.name))
            await run(context)

    def _fail(self, node: ThreadNode, error: ToolEnvironmentError | InvalidInput) -> None:
        """There is no desk for a thread: if it had something to do, that ends, and its parent is
        told why."""
        self._note(node.id, *self.thread_tree.messages_for(node.id))
        if self._close(node):
            why = f"{node.name} {node.id} cannot go on: {error}"
            self.send(node, self._parent(node), why)

    def _is_in_worktree(self, node: ThreadNode) -> bool:
        """Whether a thread works in a worktree: its own, or that of who has called it."""
        return any(
            with_ancestor.worktree is not None
            for with_ancestor in self.thread_tree.with_ancestors(node)
        )

    def has_others_below(self, node: ThreadNode) -> bool:
        """Whether a thread is at work that this one has called, or one that was called by it."""
        others = [self.thread_tree.nodes[post] for post in self._posts if post != node.id]
        return any(
            with_ancestor is node
            for other in others
            for with_ancestor in self.thread_tree.with_ancestors(other)
        )

    def _report(self, node: ThreadNode) -> None:
        """Silence is for those who wait, and for those whom somebody has stopped."""
        if _has_ended(node) and not node.is_reported and node.parent_id is not None:
            report = report_text(node, self.worktrees.describe(node))
            self.send(node, self._parent(node), report)

    def _parent(self, node: ThreadNode) -> ThreadNode:
        """Who has called a thread that is not the main one."""
        return self.thread_tree.nodes[node.parent_id or self._main]

    def _halt_all(self) -> None:
        for thread_id, post in self._posts.items():
            if thread_id != self._main:
                _cancel(post)

    def _close(self, node: ThreadNode) -> bool:
        """End a thread that nobody runs, in the log; false if it has ended before."""
        thread = node.thread
        if not thread.running and thread.is_answered and not thread.unsettled_calls():
            return False
        for call in thread.unsettled_calls():
            self.abandon(call)
        self._note(node.id, *closing_events(thread))
        return True

    def _note(self, thread_id: str, *payloads: KnownPayload) -> None:
        for event in self._record.writer.stage(*payloads, thread_id=thread_id):
            self._record.apply(event)


def _has_ended(node: ThreadNode) -> bool:
    """Whether its last run has ended, and for nobody to wait for."""
    return node.thread.last_reason not in (None, "requires_action")


def _cancel(running_thread: _RunningThread) -> None:
    if running_thread.context is not None and running_thread.context.thread.interrupted:
        running_thread.context.interrupt_requested.set()


@asynccontextmanager
async def open_supervisor(
    thread_factory: ThreadFactory,
) -> AsyncGenerator[SubagentSupervisor, None]:
    """Threads run beside each other for as long as the block lasts."""
    with unwrap_single_error():
        async with anyio.create_task_group() as group:
            yield SubagentSupervisor(thread_factory, group)
