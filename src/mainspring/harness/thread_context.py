"""ThreadContext: everything the loop of one thread works with, and its one way to record facts.
SiblingThreads: its view of the other threads of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Protocol

import anyio
import msgspec
from msgspec import Struct

from mainspring.core.envelope import Event
from mainspring.core.events import (
    ContextAdded,
    KnownPayload,
    PermissionUpdated,
    SkillUsed,
    StatusIdle,
    ToolsLoaded,
    Usage,
    UserInterrupt,
)
from mainspring.core.hook import HookEvent, HookResult
from mainspring.core.model import Delta, Effort, Model
from mainspring.core.model_facts import ModelFacts, cost_of
from mainspring.harness.budget import Budget, BudgetTier
from mainspring.harness.context.request_builder import PromptPrefix, extend_prefix, redact_prefix
from mainspring.harness.context.status_block import due_status
from mainspring.harness.context.transcript import Transcript
from mainspring.harness.event_sink import EventSink
from mainspring.harness.speculative_reads import SpeculativeReads
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.state.session_state import effective_effort, skill_model
from mainspring.harness.state.thread import Thread
from mainspring.harness.toolbox import Toolbox
from mainspring.log.writer import Writer


class SiblingThreads(Protocol):
    def is_live(self, thread_id: str) -> bool:
        """Whether a thread is running now and reads its own inbox."""
        ...

    def on_inbox(self, events: Iterable[Event]) -> None:
        """Events from outside were recorded: interrupt or resume the threads they concern."""
        ...

    def is_answerable(self, call: OpenCall) -> bool:
        """Whether a thread that this call waits for can continue because it was answered."""
        ...

    def has_unfinished_children(self, thread_id: str) -> bool:
        """Whether a background thread that this one started has not finished."""
        ...

    async def wait_for_children(self, thread_id: str) -> bool:
        """Wait until a thread that only waits for its children may have a message; False at once
        if none of them is running."""
        ...

    def pending_calls_below(self, thread_id: str) -> tuple[str, ...]:
        """Calls of the threads below this one that a person must answer."""
        ...

    def abandon(self, call: OpenCall) -> None:
        """Nothing waits for the call anymore: end the thread that it started."""
        ...


class NoSiblings:
    """The only thread of its session."""

    def is_live(self, thread_id: str) -> bool:
        return False

    def on_inbox(self, events: Iterable[Event]) -> None:
        return None

    def is_answerable(self, call: OpenCall) -> bool:
        return False

    def has_unfinished_children(self, thread_id: str) -> bool:
        return False

    async def wait_for_children(self, thread_id: str) -> bool:
        return False

    def pending_calls_below(self, thread_id: str) -> tuple[str, ...]:
        return ()

    def abandon(self, call: OpenCall) -> None:
        return None


def ignore_delta(_: Delta) -> None:
    return None


class NamedModel(Struct, frozen=True):
    name: str
    model: Model
    facts: ModelFacts


@dataclass(slots=True, kw_only=True)
class ThreadContext:
    event_sink: EventSink
    """Shared by all threads of the session."""
    thread: Thread
    model: Model
    facts: ModelFacts
    prompt_prefix: PromptPrefix
    toolbox: Toolbox
    tiers: Sequence[BudgetTier]
    """Its own limits, then those of every thread above it; each covers everything below it."""
    budget: Budget = field(default_factory=Budget)
    emit: Callable[[Delta], None] = ignore_delta
    """Receives tokens as they arrive; they are not stored."""
    new_id: Callable[[str], str]
    price: Callable[[str, Usage], Decimal] | None = None
    """The cost of a model call; without it, the price in `facts` applies."""
    speculative_reads: SpeculativeReads | None = None
    """Calls that start before the reply has ended."""
    siblings: SiblingThreads = field(default_factory=NoSiblings)
    skill_called: Callable[[str | None], SkillUsed | None] = lambda _: None
    """The fact to record when a user calls a skill by name."""
    interrupt_requested: anyio.Event = field(default_factory=anyio.Event)
    """Set when an interrupt of this thread has arrived."""
    stoppable_work: anyio.CancelScope | None = None
    """The current work of the thread that an interrupt stops."""
    open_model: Callable[[str], NamedModel] | None = None
    """Opens the model that a skill names."""
    deps: object = None
    """The value that the caller of the run passes to tools."""
    writer: Writer = field(init=False)
    _agent_model: tuple[NamedModel, Effort] = field(init=False)
    """The agent's own model and effort."""
    _inbox_changes: int = field(default=-1, init=False)
    """The writer's count when the inbox was last read."""

    def __post_init__(self) -> None:
        self.writer = self.event_sink.writer
        self.prompt_prefix = redact_prefix(self.prompt_prefix, self.writer.scrubbed)
        own = NamedModel(self.prompt_prefix.model, self.model, self.facts)
        self._agent_model = own, self.prompt_prefix.effort

    def select_model(self) -> None:
        """Switch to the model and the effort that apply to the next request."""
        own, effort = self._agent_model
        name = skill_model(self.thread.session_state)
        named_model = own if name is None or self.open_model is None else self.open_model(name)
        self.model, self.facts = named_model.model, named_model.facts
        effort = effective_effort(self.thread.session_state, effort)
        if (named_model.name, effort) != (self.prompt_prefix.model, self.prompt_prefix.effort):
            self.prompt_prefix = msgspec.structs.replace(
                self.prompt_prefix, model=named_model.name, effort=effort
            )

    @property
    def subagent(self) -> str | None:
        """Its subagent type; `None` for the main thread."""
        return self.event_sink.thread_tree.nodes[self.thread.id].name

    def note(self, *payloads: KnownPayload, event_ids: Sequence[str] = ()) -> list[Event]:
        """Record facts. They are durable after the next `event_sink.commit`, which every effect
        waits for."""
        if not payloads:
            return []
        events = self.writer.stage(*payloads, thread_id=self.thread.id, event_ids=event_ids)
        self._apply(events)
        return events

    def note_pending_facts(self) -> None:
        pending = self.toolbox.pending_facts
        facts, pending[:] = [*pending], []
        self.note(*facts)

    async def note_idle(self, idle: StatusIdle) -> None:
        if self.toolbox.before_idle is not None:
            await self.event_sink.commit()
            await self.toolbox.before_idle()
        self.note(idle)
        await self.event_sink.commit()

    def interrupt(self) -> None:
        """Stop the current work of the thread; the thread itself then records the interrupt."""
        self.interrupt_requested.set()
        if self.stoppable_work is not None:
            self.stoppable_work.cancel()

    async def receive_inbox(self, *, if_changed: bool = False) -> list[Event]:
        """Record messages of clients and other threads; between tool rounds, never inside one.
        Items for a thread that is not running are recorded on its behalf. With `if_changed`, read
        the store only after a signal that something may have arrived."""
        changes, last_changes = self.writer.inbox_changes, self._inbox_changes
        self._inbox_changes = changes
        own, thread_tree, events = self.thread.id, self.event_sink.thread_tree, list[Event]()
        if not if_changed or changes != last_changes:
            events = await self.writer.stage_inbox(
                thread_tree.addressee,
                lambda thread_id: thread_id == own or not self.siblings.is_live(thread_id),
            )
            self._apply(events)
            if not self.thread.interrupted and any(
                isinstance(event.payload, UserInterrupt) for event in events
            ):
                self.interrupt_requested = anyio.Event()  # there was nothing to interrupt
            self.siblings.on_inbox(events)
        return [*events, *self.note(*thread_tree.messages_for(own))]

    async def run_hooks(self, hook_event: HookEvent, *, is_context: bool = True) -> HookResult:
        """Run the hooks of an event and record their results; with `is_context`, also the text
        that they add for the model."""
        hook_result = await self.toolbox.authorizer.run_hooks(self.thread, hook_event)
        self.note_pending_facts()
        self.note(*hook_result.hook_runs)
        if hook_result.updates:
            self.note(
                PermissionUpdated(
                    updates=hook_result.updates, by="hook", tool_use_id=hook_event.tool_use_id
                )
            )
        if is_context:
            source = f"{hook_event.event} hook"
            self.note(*(ContextAdded(text=text, source=source) for text in hook_result.context))
        return hook_result

    def _apply(self, events: Iterable[Event]) -> None:
        for event in events:
            self.event_sink.apply(event)
            if isinstance(event.payload, ToolsLoaded):
                self.load(event.payload.names)

    async def take_tool_changes(self) -> None:
        """Apply tools that were added, removed or changed since the last turn. Their definitions
        stay where they are in the prompt; a note at its end tells the model about the changes."""
        changes = None if self.toolbox.changes is None else await self.toolbox.changes()
        if changes is None:
            return
        tools = {tool.spec.name: tool for tool in self.toolbox.tools}
        new = changes.tools.keys() - tools.keys()
        tools = {name: tool for name, tool in tools.items() if name not in changes.removed}
        self.toolbox = replace(
            self.toolbox,
            tools=[*{**tools, **changes.tools}.values()],
            deferred=self.toolbox.deferred | new,
        )
        self.note(ContextAdded(text=changes.note, source="mcp"))
        if changes.loaded:
            self.note(ToolsLoaded(names=changes.loaded))

    def load(self, names: Iterable[str]) -> None:
        """Give the model the definitions of deferred tools."""
        tools = {tool.spec.name: tool for tool in self.toolbox.tools}
        specs = [tools[name].spec for name in names if name in tools]
        self.prompt_prefix = redact_prefix(
            extend_prefix(self.prompt_prefix, specs), self.writer.scrubbed
        )

    def status(self) -> str | None:
        """The status block that is due at the end of the next request; a replay overrides it."""
        return due_status(self.thread, self.tiers)

    def input_tokens(self, transcript: Transcript | None = None) -> int:
        """A high estimate for the next request, or for one with another transcript."""
        return (transcript or self.thread.transcript).tokens(
            prefix_bytes=len(self.prompt_prefix.encoded), bytes_per_token=self.facts.bytes_per_token
        )

    def cost(self, usage: Usage, model: str) -> Decimal:
        """The cost of a model call, at the price of the model that answered it."""
        if self.price is None:
            return cost_of(usage, self.facts.price)
        return self.price(model, usage)
