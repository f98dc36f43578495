"""What a database must do for the log. Mechanical on purpose: meaning lives in `session_log.py`.

Every method is atomic: it happens wholly or, when it raises, not at all. Once begun, a write is
not cancelled half-way: it returns or raises. Time is the database's own clock wherever it decides
anything (leases), so machines whose clocks differ still exclude each other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

from msgspec import Struct

from mainspring.core.sender import OriginType
from mainspring.log.records import Records
from mainspring.log.wakeup_signals import Watch

_SESSIONS_PER_PAGE = 1000


class Row(NamedTuple):
    """An event as a store keeps it: opaque but for what it filters and orders by."""

    seq: int
    id: str
    thread_id: str
    time: int
    """Microseconds since 1970."""
    version: int
    type: str
    body: str
    prev: bytes
    sender: str | None = None
    """As JSON."""


class Head(NamedTuple):
    """Where a log ends: the seq of its last event and that event's hash."""

    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    id: str
    thread_id: str
    """The main thread."""
    created: int
    updated: int
    head: Head
    parent_id: str | None = None
    parent_seq: int = 0
    """Events up to here are the parent's, read by reference; 0 when there is no parent."""
    epoch: int = 0
    owner: str | None = None
    """Who holds an unexpired lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to append to one session, until it expires or a higher epoch is given out."""

    session_id: str
    owner: str
    epoch: int
    seconds: float
    """How long from each renewal; an append renews too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxItem:
    """A client's event waiting to be folded into the log."""

    event_id: str
    client_id: str
    thread_id: str
    time: int
    version: int
    type: str
    body: str
    sender: str | None
    """As JSON; `None` only for what was sent before senders were noted."""
    position: int = 0
    """Order of arrival, given by the store."""
    seq: int | None = None
    """Where it stands in the log, once folded."""


class FoldedItem(NamedTuple):
    """The inbox item at `position` becomes event `seq`."""

    position: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Rows for the end of a log, and what must hold for them to be written."""

    lease: Lease
    expected: Head
    head: Head
    rows: Sequence[Row]
    folded_item: Sequence[FoldedItem] = ()
    """Inbox items that these rows carry: taken out in the same transaction."""
    redacted_bodies: Sequence[tuple[int, str]] = ()
    """Earlier events of the session, by seq, with text removed: replaced in the same transaction,
    in the inbox and the word index, too."""
    removed_blobs: Sequence[str] = ()
    """Removed with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRange:
    """Which events of one session's own to read: `after < seq <= upto`, in order."""

    session_id: str
    after: int
    upto: int
    types: frozenset[str] | None = None
    threads: frozenset[str] | None = None
    limit: int = 1000
    backwards: bool = False
    """Newest first."""


class IndexedText(Struct, frozen=True, kw_only=True):
    """Searchable words of one event."""

    session_id: str
    seq: int
    text: str


class SessionScope(Struct, frozen=True, kw_only=True):
    """Whose sessions are searched: those for which all of this is true."""

    tenant: str | None
    """`None`: sessions on a person's machine, which have no tenant."""
    agent: str | None = None
    """The name that a session was created with."""
    user: str | None = None
    """The sender that created it."""
    without_origins: tuple[OriginType, ...] = ()
    without_sessions: tuple[str, ...] = ()


class SearchHit(Struct, frozen=True, kw_only=True):
    session_id: str
    seq: int
    snippet: str


class Store(Protocol):
    @property
    def records(self) -> Records:
        """What the service keeps, in the same database."""
        ...

    def transaction(self, *, writes: bool) -> AbstractAsyncContextManager[Store]:
        """The store at one moment: what others write after it was entered is not seen there. What
        is written there becomes so when the block is left, all of it, or nothing if it raises.

        Not for every day: while it lasts the database keeps what it would tidy away and, with
        `writes`, may keep other writers waiting.
        """
        ...

    async def create(
        self,
        session: SessionRow,
        rows: Sequence[Row],
        *,
        blobs: Mapping[str, bytes] = MappingProxyType({}),
        inbox: Sequence[InboxItem] = (),
    ) -> None:
        """Make a session with all that belongs to it; inbox items get positions in this order.

        Raises: SessionExists; SessionNotFound for an unknown parent.
        """
        ...

    async def session(self, session_id: str) -> SessionRow:
        """Raises: SessionNotFound."""
        ...

    async def sessions(
        self, *, before: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        """Newest first, by creation and id; `before` is the last one seen."""
        ...

    async def runnable(self, *, limit: int = 100) -> list[str]:
        """Sessions that have something in their inbox, or whose holder died before it let go, and
        that nobody holds now; the longest waiting first."""
        ...

    async def stale(self, *, updated_before: int, limit: int = 100) -> list[str]:
        """Sessions that nobody holds or waits for, and that have not changed since."""
        ...

    async def expire(self, session_ids: Sequence[str], *, updated_before: int) -> list[str]:
        """Delete those that are stale at that very moment and have no forks; returns which."""
        ...

    async def append(self, append: Append) -> None:
        """Raises: Fenced, Conflict, SessionNotFound."""
        ...

    async def read(self, event_range: EventRange) -> list[Row]: ...

    async def submit(self, session_id: str, item: InboxItem) -> InboxItem:
        """Put into the inbox; a `client_id` seen before returns the item it made then.

        The session counts as changed. An item with a `seq` is remembered as folded.
        """
        ...

    async def pending(
        self,
        session_id: str,
        *,
        after: int = 0,
        types: frozenset[str] | None = None,
        limit: int = 1000,
    ) -> list[InboxItem]:
        """What is not folded yet and came after position `after`, in order of arrival."""
        ...

    async def inbox(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[InboxItem]:
        """As `pending`, with what is folded."""
        ...

    async def acquire(
        self,
        session_id: str,
        *,
        owner: str,
        seconds: float,
        instead_of: tuple[str, int] | None = None,
    ) -> Lease:
        """Take the lease if it is free or has expired; the same owner has no claim to a second one.

        `instead_of` is the owner and epoch of a `LeaseHeld`, whose holder is known to be gone: its
        lease is taken before it expires, unless somebody else did so first.

        Raises: LeaseHeld, SessionNotFound.
        """
        ...

    async def renew(self, lease: Lease) -> None:
        """Raises: Fenced."""
        ...

    async def release(self, lease: Lease) -> None:
        """Let go: who did is fenced. A lease that was taken over already is no error."""
        ...

    async def put_blob(self, session_id: str, digest: str, content: bytes) -> None: ...

    async def blob(self, digest: str) -> bytes:
        """Raises: BlobNotFound."""
        ...

    async def blobs(self, session_id: str) -> list[str]:
        """Digests that this session itself refers to, sorted."""
        ...

    async def unindexed(self, session_id: str | None, *, limit: int) -> list[tuple[str, Row]]:
        """Events not yet searchable, with their session, in order; all sessions for `None`."""
        ...

    async def index(
        self, indexed_texts: Sequence[IndexedText], upto: Sequence[tuple[str, int]]
    ) -> None:
        """Make texts searchable and remember, per session, how far that went."""
        ...

    async def search(
        self,
        words: Sequence[str],
        *,
        event_ranges: Sequence[EventRange],
        limit: int,
        is_loose: bool = False,
        scope: SessionScope | None = None,
    ) -> list[SearchHit]:
        """Events with all the words, best first; `is_loose`: with any word that begins like one of
        them. `event_ranges` limits where, all sessions if empty; `scope` whose. A fork is its
        parent's."""
        ...

    async def delete(self, session_id: str) -> None:
        """Remove every trace. Raises: SessionNotFound, SessionHasForks."""
        ...

    def watch(self, session_id: str, *, is_inbox_only: bool = False) -> Watch:
        """A signal that the session may have changed, in this process or another; or only that its
        inbox may have."""
        ...


async def all_sessions(store: Store) -> AsyncGenerator[SessionRow, None]:
    """Newest first, page by page."""
    before: SessionRow | None = None
    while page := await store.sessions(before=before, limit=_SESSIONS_PER_PAGE):
        for session in page:
            yield session
        before = page[-1]
