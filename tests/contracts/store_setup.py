"""What the cases are told with: a session with a writer, rows to append, errors to expect."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeAlias, TypeVar

import anyio

from mainspring.core import ids
from mainspring.core.content import TextBlock
from mainspring.core.envelope import AnyPayload, Event, UnknownPayload, encode_payload, message_text
from mainspring.core.errors import MainspringError
from mainspring.core.events import AgentMessage, UserMessage
from mainspring.log.event_chain import EventDraft, chain_events, to_row
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Append, FoldedItem, Head, Lease, Row, Store
from mainspring.log.writer import Writer

StoreFactory: TypeAlias = Callable[[], AbstractAsyncContextManager[Store]]
Check: TypeAlias = Callable[[StoreFactory], Awaitable[None]]

ENDLESS = 2**62
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

ErrorT = TypeVar("ErrorT", bound=MainspringError)


@dataclass(frozen=True, slots=True)
class Scene:
    """An open store with a fresh session and the lease on it."""

    store: Store
    log: SessionLog
    writer: Writer

    @property
    def id(self) -> str:
        return self.writer.session_id

    @property
    def thread_id(self) -> str:
        return self.writer.thread_id


@asynccontextmanager
async def scene(open_store: StoreFactory) -> AsyncGenerator[Scene]:
    async with open_store() as store:
        log = SessionLog(store)
        session = await log.create()
        yield Scene(store, log, await log.hold(session.id, owner="the writer", seconds=60))


class Refusal(Generic[ErrorT]):
    """What was raised, once the block is left."""

    def __init__(self) -> None:
        self._errors: list[ErrorT] = []

    def caught(self, error: ErrorT) -> None:
        self._errors.append(error)

    @property
    def error(self) -> ErrorT:
        return self._errors[0]


@contextmanager
def refused(kind: type[ErrorT]) -> Generator[Refusal[ErrorT]]:
    """The block must raise this error."""
    refusal: Refusal[ErrorT] = Refusal()
    try:
        yield refusal
    except kind as error:
        refusal.caught(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def says(text: str) -> AgentMessage:
    return AgentMessage(content=(TextBlock(text),))


def asks(text: str) -> UserMessage:
    return UserMessage(content=(TextBlock(text),))


def texts(events: Iterable[Event]) -> list[str]:
    """What was said, without the events that say nothing."""
    return [text for event in events if (text := message_text(event.payload))]


def draft(payload: AgentMessage, thread_id: str = "sthr_main") -> EventDraft:
    return _draft(payload, encode_payload(payload), thread_id)


def foreign(body: bytes, kind: str) -> EventDraft:
    """An event of a type that this version does not know, as `body`."""
    return _draft(UnknownPayload(type=kind), body, "sthr_main")


def _draft(payload: AnyPayload, body: bytes, thread_id: str) -> EventDraft:
    return EventDraft(
        id=ids.new_id(ids.EVENT), thread_id=thread_id, time=MOMENT, payload=payload, body=body
    )


def appending(
    lease: Lease, head: Head, *drafts: EventDraft, folded_items: tuple[FoldedItem, ...] = ()
) -> Append:
    """An append of drafts at `head`, as the writer would make it."""
    events, reached = chain_events(lease.session_id, head, drafts)
    rows: list[Row] = [to_row(event) for event in events]
    return Append(lease=lease, expected=head, head=reached, rows=rows, folded_items=folded_items)


async def take_over(store: Store, lease: Lease) -> Lease:
    """The same owner's next lease, as if the one before were a dead process's."""
    return await store.acquire(
        lease.session_id, owner=lease.owner, seconds=60, instead_of=(lease.owner, lease.epoch)
    )


async def until(claim: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what only time brings about; the case's time limit bounds it."""
    while not await claim():  # noqa: ASYNC110 (a lease that expires tells nobody)
        await anyio.sleep(0.01)
