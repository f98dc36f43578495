"""All threads of a session as a fold of its log: parents and children, the spending of each with
its children, and messages between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec import UNSET, Struct, field

from mainspring.core import events
from mainspring.core.envelope import AnyPayload, Event
from mainspring.harness import limits
from mainspring.harness.limits import Spending
from mainspring.harness.state.open_call import call_id_of
from mainspring.harness.state.session_state import SessionState
from mainspring.harness.state.thread import Thread
from mainspring.harness.state.utility import RELEVANT, UtilityFold
from mainspring.harness.stop_reasons import INTERRUPTED_REASONS

ThreadMessage: TypeAlias = events.ThreadMessageSent | events.ThreadMessageReceived
_CONCERNING_OTHERS = frozenset[type](
    (
        events.ModelRequestEnded,
        events.ThreadMessageReceived,
        events.AgentMcpToolResult,
        events.AgentToolResult,
        events.StatusIdle,
        events.StatusRunning,
        events.ThreadCreated,
        events.ThreadMessageSent,
        events.ThreadStatusTerminated,
        events.UserInterrupt,
        events.SessionForked,
        events.SessionReceived,
        events.WorktreeClosed,
        events.WorktreeOpened,
    )
)
"""Types of events that may affect other threads than their own."""
_EARNING = frozenset[type](RELEVANT)

_UNAWAITED = ("background", "handoff")
"""Modes of threads that no call waits for."""
_CONVERSATION = (
    events.UserMessage,
    events.UserDefineOutcome,
    events.SystemMessage,
    events.CompactionRequested,
    events.WorkflowRunEnded,
)
"""Events that a client sends to the thread that has the conversation."""


class SpendAccount(Struct):
    """The spending of a thread and all threads below it; for the main thread, the whole session."""

    spending: Spending = field(default_factory=Spending)
    usage: events.Usage = field(default_factory=events.Usage)

    def apply(self, event: Event) -> None:
        self.spending = limits.fold(self.spending, event.payload, event.time)
        if isinstance(event.payload, events.ModelRequestEnded):
            self.usage = add_usage(self.usage, event.payload.model_usage)


def add_usage(first: events.Usage, other: events.Usage) -> events.Usage:
    """The sum of both."""
    return events.Usage(
        input_tokens=first.input_tokens + other.input_tokens,
        cache_creation_input_tokens=first.cache_creation_input_tokens
        + other.cache_creation_input_tokens,
        cache_read_input_tokens=first.cache_read_input_tokens + other.cache_read_input_tokens,
        output_tokens=first.output_tokens + other.output_tokens,
        thinking_tokens=first.thought_tokens + other.thought_tokens or UNSET,
    )


class ThreadNode(Struct):
    """One thread of the tree."""

    thread: Thread
    spend_account: SpendAccount = field(default_factory=SpendAccount)
    created_event: events.ThreadCreated | None = None
    """`None`: the main thread."""
    depth: int = 0
    is_reported: bool = True
    """Whether its parent has received the report of its last run."""
    is_terminated: bool = False
    """It does not run again and gets no messages."""
    worktree: events.WorktreeOpened | None = None
    """Its worktree, if it does not work in the workspace."""

    @property
    def id(self) -> str:
        return self.thread.id

    @property
    def parent_id(self) -> str | None:
        return None if self.created_event is None else self.created_event.parent_thread_id

    @property
    def name(self) -> str | None:
        return None if self.created_event is None else self.created_event.agent_name


class ThreadTree:
    def __init__(self, main_id: str) -> None:
        self.main = ThreadNode(Thread(id=main_id))
        self.active = self.main
        """The thread that has the conversation with the user: the main one, until it hands off."""
        self.nodes: dict[str, ThreadNode] = {main_id: self.main}
        """By thread id, in the order of creation."""
        self._mail: dict[str, dict[str, events.ThreadMessageReceived]] = {}
        """Messages that were not received yet, by addressee and by the event that sent them."""
        self._by_call: dict[str, ThreadNode] = {}
        self.utility = UtilityFold()

    @classmethod
    def of(cls, log: Iterable[Event], main_id: str) -> ThreadTree:
        thread_tree = cls(main_id)
        for event in log:
            thread_tree.apply(event)
        return thread_tree

    def apply(self, event: Event) -> None:
        node = self.nodes.get(event.thread_id)
        if node is None:
            return  # no event has created this thread
        node.thread.apply(event)
        if type(event.payload) in _EARNING:
            self.utility.apply(event)
        if node is self.main:
            node.spend_account.apply(event)
        else:
            # A budget is one of a tree: what a subagent spends, each thread above it has spent.
            for spender in self.with_ancestors(node):
                spender.spend_account.apply(event)
        if type(event.payload) in _CONCERNING_OTHERS:
            if node is not self.main and _is_progress(event.payload):
                self._reset_ancestor_wakes(node)
            self._apply_to_others(node, event)

    def with_ancestors(self, node: ThreadNode) -> Iterator[ThreadNode]:
        """The thread, its parent, and so on up to the main thread."""
        while True:
            yield node
            if node.parent_id is None:
                return
            node = self.nodes[node.parent_id]

    def handed_to(self, node: ThreadNode) -> ThreadNode | None:
        """The thread that continues the conversation of this one, if it was handed off."""
        chain = [item for item in self.with_ancestors(self.active) if item.parent_id == node.id]
        return chain[0] if chain else None

    def children(self, thread_id: str) -> list[ThreadNode]:
        """The threads that a thread has created itself."""
        return [node for node in self.nodes.values() if node.parent_id == thread_id]

    def created_by(self, tool_use_id: str) -> ThreadNode | None:
        """The thread that a call created."""
        return self._by_call.get(tool_use_id)

    def is_awaited(self, node: ThreadNode) -> bool:
        """Whether a call of its parent stays open until it is done."""
        created = node.created_event
        if created is None or created.mode in _UNAWAITED or created.tool_use_id is None:
            return False
        parent = self.nodes.get(created.parent_thread_id or "")
        call = None if parent is None else parent.thread.round.get(created.tool_use_id)
        return call is not None and not call.settled

    def messages_for(self, thread_id: str) -> list[events.ThreadMessageReceived]:
        """Messages that a thread has not received yet, in the order they were sent."""
        is_gone = thread_id in self.nodes and self.nodes[thread_id].is_terminated
        return [] if is_gone else list(self._mail.get(thread_id, {}).values())

    def addressee(self, payload: AnyPayload, thread_id: str) -> str:
        """Which thread a client event is for: an answer goes to the thread that asked."""
        call_id = call_id_of(payload)
        if call_id is None:
            is_conversation = thread_id == self.main.id and isinstance(payload, _CONVERSATION)
            return self.active.id if is_conversation else thread_id
        owners = (node.id for node in self.nodes.values() if call_id in node.thread.round)
        return next(owners, thread_id)

    def _reset_ancestor_wakes(self, node: ThreadNode) -> None:
        """A thread that waits for this one makes progress with it, so crashes do not end it."""
        while self.is_awaited(node) and node.parent_id is not None:
            node = self.nodes[node.parent_id]
            node.thread.retries.wakes = 0

    def _apply_to_others(self, node: ThreadNode, event: Event) -> None:
        """Apply an event to other threads than its own."""
        match event.payload:
            case events.ThreadCreated() as created:
                self._create(node, created)
            case events.ThreadMessageSent() | events.ThreadMessageReceived() as message:
                self._apply_message(node, event.id, message)
            case events.ThreadStatusTerminated(session_thread_id=thread_id):
                self._terminate(thread_id)
            case events.AgentToolResult(tool_use_id=call_id):
                self._settle(call_id)
            case events.StatusRunning() | events.StatusIdle() as status:
                _note_status(node, status)
            case (
                events.UserInterrupt() | events.SessionForked() | events.SessionReceived()
            ) as why if node is self.main:
                self._end_all(why, event.seq)
            case events.WorktreeOpened() | events.WorktreeClosed() as change:
                _note_worktree(node, change)
            case _:
                pass

    def _apply_message(
        self, node: ThreadNode, event_id: str, thread_message: ThreadMessage
    ) -> None:
        if isinstance(thread_message, events.ThreadMessageSent):
            self._send(node, event_id, thread_message)
        elif thread_message.sent_id is not None:
            self._mail.get(node.id, {}).pop(thread_message.sent_id, None)

    def _terminate(self, thread_id: str) -> None:
        if (node := self.nodes.get(thread_id)) is not None:
            node.is_terminated = True
            node.thread.interrupt()

    def _end_all(
        self, why: events.UserInterrupt | events.SessionForked | events.SessionReceived, seq: int
    ) -> None:
        """An interrupt that names no thread is for all of them, and for messages on their way. A
        fork or a move ends all work in progress."""
        for node in self.nodes.values():
            if isinstance(why, events.UserInterrupt):
                if why.session_thread_id is None:
                    node.thread.interrupt()
                    node.thread.interrupted |= bool(self._mail.get(node.id))
            elif node is not self.main:
                node.thread.discard_in_progress(seq)
                node.thread.interrupted = bool(node.thread.unsettled_calls())
                node.worktree = None
                node.thread.transcript.is_answered = True
                node.is_reported = True

    def _create(self, parent: ThreadNode, created: events.ThreadCreated) -> None:
        # a person's messages and permissions, and foreign reads, concern all threads
        shared = self.main.thread.session_state
        state = SessionState(
            permissions=shared.permissions,
            prompts=shared.prompts,
            foreign_reads=shared.foreign_reads,
        )
        thread = Thread(id=created.session_thread_id, session_state=state)
        if created.is_fork:
            thread.transcript = parent.thread.transcript.branch()
            state.loaded_tools = parent.thread.session_state.loaded_tools
        node = ThreadNode(thread, created_event=created, depth=parent.depth + 1)
        if self.nodes.setdefault(node.id, node) is node and created.tool_use_id is not None:
            self._by_call[created.tool_use_id] = node
        if created.mode == "handoff":
            self.active = node

    def _send(self, sender: ThreadNode, event_id: str, message: events.ThreadMessageSent) -> None:
        if message.to_session_thread_id == sender.parent_id:
            sender.is_reported = True
        self._mail.setdefault(message.to_session_thread_id, {})[event_id] = (
            events.ThreadMessageReceived(
                from_session_thread_id=sender.id,
                from_agent_name=sender.name,
                content=message.content,
                sent_id=event_id,
            )
        )

    def _settle(self, call_id: str) -> None:
        node = self._by_call.get(call_id)
        created = None if node is None else node.created_event
        if node is not None and created is not None and created.mode not in _UNAWAITED:
            node.is_reported = True


def _note_worktree(node: ThreadNode, change: events.WorktreeOpened | events.WorktreeClosed) -> None:
    if isinstance(change, events.WorktreeOpened):
        node.worktree = change
    elif change.outcome != "kept":
        node.worktree = None


def _is_progress(payload: AnyPayload) -> bool:
    match payload:
        case events.ModelRequestEnded(is_error=is_error, purpose=None):
            return not is_error
        case events.AgentToolResult() | events.AgentMcpToolResult():
            return True
        case _:
            return False


def _note_status(node: ThreadNode, status: events.StatusRunning | events.StatusIdle) -> None:
    if isinstance(status, events.StatusRunning):
        node.is_reported = node.created_event is None
    elif status.reason in INTERRUPTED_REASONS:
        node.is_reported = True  # a stopped thread sends no report
