"""ThreadContext: everything the loop of one thread works with, and its one way to write (note,
then commit). SiblingThreads is what it may ask of the session's other threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

import anyio
import msgspec

from mainspring.core.envelope import Event, KnownPayload
from mainspring.core.events import PermissionUpdated, StatusIdle, Usage
from mainspring.core.facts import ContextAdded, SkillUsed, ToolsLoaded
from mainspring.core.hook import HookEvent, HookResult
from mainspring.core.model import Delta, Effort, Model
from mainspring.core.model_facts import ModelFacts, cost_of
from mainspring.core.ports import SandboxInfo, Snapshots
from mainspring.core.tool import Tool
from mainspring.harness.authorizer import AllowAll, Authorizer
from mainspring.harness.budget import Budget
from mainspring.harness.context.request_builder import PromptPrefix, extend_prefix, redact_prefix
from mainspring.harness.event_sink import EventSink
from mainspring.harness.limits import Limits
from mainspring.harness.nested_budgets import BudgetTier
from mainspring.harness.speculative_reads import SpeculativeReads
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.state.session_state import effective_effort, skill_model
from mainspring.harness.state.thread import Thread
from mainspring.harness.state.thread_tree import SpendAccount
from mainspring.log.writer import Writer


class SiblingThreads(Protocol):
    def is_live(self, thread_id: str) -> bool:
        """Whether a thread is being run now, and so listens itself."""
        ...

    def on_inbox(self, events: Iterable[Event]) -> None:
        """A desk has taken in what came from outside: whom does it concern?"""
        ...

    def is_answerable(self, call: OpenCall) -> bool:
        """Whether a thread that this call waits for could go on: somebody has answered it."""
        ...

    def has_unfinished_children(self, thread_id: str) -> bool:
        """Whether somebody whom this thread has called, and does not wait for, is not done."""
        ...

    async def wait_for_children(self, thread_id: str) -> bool:
        """Wait until there may be news for a thread that has nothing to do but hear from those
        whom it has called; False at once, if none of them is at work."""
        ...

    def pending_calls_below(self, thread_id: str) -> tuple[str, ...]:
        """Calls that people must answer, of those whom this thread has called."""
        ...

    def abandon(self, call: OpenCall) -> None:
        """The call is not waited for any more: what was born of it ends in the log, as it is."""
        ...


class NoSiblings:
    """No other threads."""

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


@dataclass(frozen=True, slots=True)
class NamedModel:
    name: str
    model: Model
    facts: ModelFacts


@dataclass(slots=True, kw_only=True)
class ThreadContext:
    event_sink: EventSink
    """The session's, which all its desks write to."""
    thread: Thread
    model: Model
    facts: ModelFacts
    prompt_prefix: PromptPrefix
    tools: Mapping[str, Tool]
    custom_tools: frozenset[str] = frozenset()
    """Names of tools that the client runs itself."""
    deferred: frozenset[str] = frozenset()
    """Names of tools that the model must load with `tool_search` before it can call them."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names that models use for our tools -> ours."""
    sandbox_info: SandboxInfo | None = None
    """What tools run programs in."""
    snapshots: Snapshots | None = None
    pending_facts: list[KnownPayload] = field(default_factory=list[KnownPayload])
    """What the hands have done besides, and the log does not know yet."""
    limits: Limits = field(default_factory=Limits)
    parent_tiers: Sequence[BudgetTier] = ()
    """What those who have called this thread may spend, with all below them."""
    budget: Budget = field(default_factory=Budget)
    authorizer: Authorizer = field(default_factory=AllowAll)
    emit: Callable[[Delta], None] = ignore_delta
    """Where tokens go as they come; they are not kept."""
    new_id: Callable[[str], str]
    price: Callable[[str, Usage], Decimal] | None = None
    """What a call of a model costs; without it, the facts' price is taken."""
    speculative_reads: SpeculativeReads | None = None
    """Calls that begin before their reply has ended."""
    siblings: SiblingThreads = field(default_factory=NoSiblings)
    subagent: str | None = None
    """Its name, if this is not the main thread's desk."""
    skill_called: Callable[[str | None], SkillUsed | None] = lambda _: None
    """What it means that a user has called a skill by its name."""
    before_idle: Callable[[], Awaitable[None]] | None = None
    """What is done once the thread has ended, before anybody can see that it is idle."""
    is_watched: bool = False
    """Somebody else listens for interrupts of this thread, and sets `halted`."""
    interrupt_requested: anyio.Event = field(default_factory=anyio.Event)
    """Set when the thread is interrupted by what another one has heard."""
    open_model: Callable[[str], NamedModel] | None = None
    """A model by the name that a skill gives it."""
    _agent_model: tuple[NamedModel, Effort] = field(init=False)
    """The agent's own model and effort."""

    def __post_init__(self) -> None:
        self.prompt_prefix = redact_prefix(self.prompt_prefix, self.writer.scrubbed)
        own = NamedModel(self.prompt_prefix.model, self.model, self.facts)
        self._agent_model = own, self.prompt_prefix.effort

    def select_model(self) -> None:
        """Take the model and the effort that hold for the next request."""
        own, effort = self._agent_model
        wanted = skill_model(self.thread.session_state)
        named = own if wanted is None or self.open_model is None else self.open_model(wanted)
        self.model, self.facts = named.model, named.facts
        effort = effective_effort(self.thread.session_state, effort)
        if (named.name, effort) != (self.prompt_prefix.model, self.prompt_prefix.effort):
            self.prompt_prefix = msgspec.structs.replace(
                self.prompt_prefix, model=named.name, effort=effort
            )

    @property
    def writer(self) -> Writer:
        return self.event_sink.writer

    @property
    def spend_account(self) -> SpendAccount:
        return self.event_sink.thread_tree.nodes[self.thread.id].spend_account

    @property
    def tiers(self) -> list[BudgetTier]:
        """Whose limits hold for it: its own, then those of all above it."""
        return [BudgetTier(self.spend_account, self.limits), *self.parent_tiers]

    def note(self, *payloads: KnownPayload, event_ids: Sequence[str] = ()) -> list[Event]:
        """Record facts. They are durable after the next `commit`, which every effect waits for."""
        events = self.writer.stage(*payloads, thread_id=self.thread.id, event_ids=event_ids)
        self._apply(events)
        return events

    def note_pending_facts(self) -> None:
        side_events, self.pending_facts[:] = [*self.pending_facts], []
        self.note(*side_events)

    async def commit(self) -> None:
        await self.event_sink.commit()

    async def note_idle(self, idle: StatusIdle) -> None:
        if self.before_idle is not None:
            await self.commit()
            await self.before_idle()
        self.note(idle)
        await self.commit()

    async def receive_inbox(self) -> list[Event]:
        """Take in what clients have sent, and other threads; between tool rounds, never inside
        one. What is for a thread that does not listen itself now, is taken in for it."""
        record, own = self.event_sink, self.thread.id
        events = await self.writer.stage_inbox(
            record.thread_tree.addressee,
            lambda thread_id: thread_id == own or not self.siblings.is_live(thread_id),
        )
        self._apply(events)
        self.siblings.on_inbox(events)
        return [*events, *self.note(*record.thread_tree.messages_for(own))]

    async def run_hooks(self, hook_event: HookEvent, *, is_context: bool = True) -> HookResult:
        """Tell hooks what happens, and note what they did; `is_context`: and what they want the
        model to know, unless the caller tells it."""
        hook_result = await self.authorizer.run_hooks(self.thread, hook_event)
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

    def load(self, names: Iterable[str]) -> None:
        """Give the model the definitions of deferred tools."""
        more = [self.tools[name].spec for name in names if name in self.tools]
        self.prompt_prefix = redact_prefix(
            extend_prefix(self.prompt_prefix, more), self.writer.scrubbed
        )

    def input_tokens(self) -> int:
        """Of the next request, leaning high."""
        return self.thread.transcript.tokens(
            prefix_bytes=self.prompt_prefix.size, bytes_per_token=self.facts.bytes_per_token
        )

    def cost(self, usage: Usage, model: str) -> Decimal:
        """Of a call, by the model that answered it."""
        if self.price is None:
            return cost_of(usage, self.facts.price)
        return self.price(model, usage)
