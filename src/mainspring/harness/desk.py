"""Everything one thread's loop works with, and the one way it writes: note, then commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from mainspring.core.catalog import ModelFacts, cost_of
from mainspring.core.envelope import Event, KnownPayload
from mainspring.core.errors import Conflict
from mainspring.core.events import ModelRequestEnded, PermissionUpdated, Usage
from mainspring.core.facts import ContextAdded, ToolsLoaded
from mainspring.core.hands import Box, Snapshots
from mainspring.core.hook import Occasion, Ruling
from mainspring.core.model import Delta, Model
from mainspring.core.tool import Tool
from mainspring.harness import limits as limit
from mainspring.harness.budget import Purse
from mainspring.harness.context.view import Prefix, widened
from mainspring.harness.early import Early
from mainspring.harness.gates import Gates, OpenGates
from mainspring.harness.limits import Limits, Spent
from mainspring.harness.thread import Thread
from mainspring.log.writer import Writer


@dataclass(slots=True)
class Account:
    """What a session has spent, all of its threads together."""

    spent: Spent = field(default_factory=Spent)
    usage: Usage = field(default_factory=Usage)

    def apply(self, event: Event) -> None:
        self.spent = limit.fold(self.spent, event.payload, event.time)
        if isinstance(event.payload, ModelRequestEnded):
            self.usage = added(self.usage, event.payload.model_usage)

    @classmethod
    def of(cls, log: Iterable[Event]) -> Account:
        account = cls()
        for event in log:
            account.apply(event)
        return account


def added(one: Usage, other: Usage) -> Usage:
    """The tokens of both."""
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        cache_creation_input_tokens=one.cache_creation_input_tokens
        + other.cache_creation_input_tokens,
        cache_read_input_tokens=one.cache_read_input_tokens + other.cache_read_input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
    )


def unheard(_: Delta | Event) -> None:
    return None


@dataclass(slots=True, kw_only=True)
class Desk:
    writer: Writer
    thread: Thread
    account: Account
    model: Model
    facts: ModelFacts
    prefix: Prefix
    tools: Mapping[str, Tool]
    custom_tools: frozenset[str] = frozenset()
    """Names of tools that the client runs itself."""
    deferred: frozenset[str] = frozenset()
    """Names of tools that the model must load with `tool_search` before it can call them."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names that models use for our tools -> ours."""
    box: Box | None = None
    """What tools run programs in."""
    snapshots: Snapshots | None = None
    overheard: list[KnownPayload] = field(default_factory=list[KnownPayload])
    """What the hands have done besides, and the log does not know yet."""
    limits: Limits = field(default_factory=Limits)
    purse: Purse = field(default_factory=Purse)
    gates: Gates = field(default_factory=OpenGates)
    emit: Callable[[Delta], None] = unheard
    """Where tokens go as they come; they are not kept."""
    tell: Callable[[Event], None] = unheard
    """Hears of every event of this run, in order, once it is durable."""
    new_id: Callable[[str], str]
    price: Callable[[str, Usage], Decimal] | None = None
    """What a call of a model costs; without it, the facts' price is taken."""
    early: Early | None = None
    """Calls that begin before their reply has ended."""
    _untold: list[Event] = field(default_factory=list[Event], init=False)

    def note(self, *payloads: KnownPayload, event_ids: Sequence[str] = ()) -> list[Event]:
        """Record facts. They are durable after the next `commit`, which every effect waits for."""
        events = self.writer.stage(*payloads, thread_id=self.thread.id, event_ids=event_ids)
        self._apply(events)
        return events

    def note_overheard(self) -> None:
        overheard, self.overheard[:] = [*self.overheard], []
        self.note(*overheard)

    async def commit(self) -> None:
        await self.writer.commit()
        durable = self.writer.head.seq
        told = [event for event in self._untold if event.seq <= durable]
        del self._untold[: len(told)]
        if self._untold and self.writer.is_clear:  # another's commit failed and took ours along
            lost = self._untold[-1].seq
            conflict = Conflict(self.writer.session_id, expected=lost, actual=durable)
            raise conflict from self.writer.loss
        for event in told:
            self.tell(event)

    async def listen(self) -> list[Event]:
        """Take in what clients have sent; between tool rounds, never inside one."""
        events = await self.writer.stage_inbox()
        self._apply(events)
        return events

    async def ask_hooks(self, occasion: Occasion, *, is_context: bool = True) -> Ruling:
        """Tell hooks what happens, and note what they did; `is_context`: and what they want the
        model to know, unless the caller tells it."""
        ruling = await self.gates.tell(self.thread, occasion)
        self.note_overheard()
        self.note(*ruling.ran)
        if ruling.updates:
            self.note(
                PermissionUpdated(
                    updates=ruling.updates, by="hook", tool_use_id=occasion.tool_use_id
                )
            )
        if is_context:
            source = f"{occasion.event} hook"
            self.note(*(ContextAdded(text=text, source=source) for text in ruling.context))
        return ruling

    def _apply(self, events: Iterable[Event]) -> None:
        for event in events:
            self.thread.apply(event)
            self.account.apply(event)
            self._untold.append(event)
            if isinstance(event.payload, ToolsLoaded):
                self.load(event.payload.names)

    def load(self, names: Iterable[str]) -> None:
        """Give the model the definitions of deferred tools."""
        self.prefix = widened(
            self.prefix, [self.tools[name].spec for name in names if name in self.tools]
        )

    def input_tokens(self) -> int:
        """Of the next request, leaning high."""
        return self.thread.transcript.tokens(
            prefix_bytes=self.prefix.size, bytes_per_token=self.facts.bytes_per_token
        )

    def cost(self, usage: Usage, model: str) -> Decimal:
        """Of a call, by the model that answered it."""
        if self.price is None:
            return cost_of(usage, self.facts.price)
        return self.price(model, usage)
