"""The interface of a database that holds logs. Deliberately low-level: `session_log.py` gives the
rows their meaning.

Every method is atomic: it has its whole effect or, if it raises, none. Cancellation never stops a
write half-way. Leases use the database's clock, so they also work between machines whose clocks
differ.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from mainspring.core.sender import OriginType
from mainspring.log.records import Records
from mainspring.log.session_status import ThreadStatus
from mainspring.log.wakeup_signals import Watch

if TYPE_CHECKING:
    from mainspring.log.provenance import Provenance

_SESSIONS_PER_PAGE = 1000  # read at once


class Row(NamedTuple):
    """A stored event: opaque except for the columns to filter and order by."""

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
    """The end of a log: the seq and the hash of its last event."""

    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: str
    thread_id: str
    """The main thread."""
    created: int
    updated: int
    head: Head
    parent_id: str | None = None
    parent_seq: int = 0
    """Events up to this seq belong to the parent and are read from it; 0 without a parent."""
    epoch: int = 0
    owner: str | None = None
    """The holder of an unexpired lease."""
    activity: str | None = None
    """What it does now, as JSON (`session_activity.py`); `None` if it was not folded yet."""
    mac: bytes | None = None
    """Proves that this installation wrote the log up to its head (`log/provenance.py`)."""
    status: ThreadStatus | None = None
    """As its log says, for lists; `None` if it was not folded yet."""


class ActivityNote(NamedTuple):
    """What a session whose log ends at `seq` does, as JSON, and its status."""

    session_id: str
    seq: int
    activity: str
    status: ThreadStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to append to one session, until it expires or another writer takes over."""

    session_id: str
    owner: str
    epoch: int
    seconds: float
    """Its duration after each renewal. An append also renews it."""


class InboxItem(NamedTuple):
    """A client's event waiting to be folded into the log."""

    event_id: str
    client_id: str
    thread_id: str
    time: int
    version: int
    type: str
    body: str
    sender: str | None
    """As JSON; `None` only for events from before senders were recorded."""
    position: int = 0
    """Order of arrival; the store assigns it."""
    seq: int | None = None
    """Its position in the log, once it is folded."""
    mac: bytes | None = None
    """Proves that this installation wrote it (`log/provenance.py`)."""


class FoldedItem(NamedTuple):
    """The inbox item at `position` becomes event `seq`."""

    position: int
    seq: int


class Append(NamedTuple):  # a frozen dataclass takes four times as long to create
    """Rows to append to a log, and the conditions under which they may be written."""

    lease: Lease
    expected: Head
    head: Head
    rows: Sequence[Row]
    folded_items: Sequence[FoldedItem] = ()
    """Inbox items that these rows contain. The same transaction removes them from the inbox."""
    redacted_bodies: Sequence[tuple[int, str]] = ()
    """New bodies of earlier events, by seq, with text removed. The same transaction replaces them
    in the log, the inbox and the word index."""
    removed_blobs: Sequence[str] = ()
    """Digests of the blobs to remove in the same transaction."""
    activity: str | None = None
    """The session's activity after these rows. `None`: it is folded from the log when needed."""
    mac: bytes | None = None
    """The session's MAC at `head`. `None`: the session is foreign from now on."""
    status: ThreadStatus | None = None
    """The session's status after these rows. `None`: as before, as far as lists know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRange:
    """Which of a session's own events to read: `after < seq <= upto`, in order."""

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
    """Those sessions that meet all of these conditions; a fork is in the scope of its parent."""

    tenant: str | None
    """`None`: sessions on a person's machine, which have no tenant."""
    any_tenant: bool = False
    agent: str | None = None
    """The agent name in the session's first event."""
    user: str | None = None
    """The sender that created the session."""
    without_origins: tuple[OriginType, ...] = ()
    without_sessions: tuple[str, ...] = ()


class LogSearchHit(Struct, frozen=True, kw_only=True):
    session_id: str
    seq: int
    snippet: str


class Store(Protocol):
    @property
    def provenance(self) -> Provenance:
        """Which of its rows this installation wrote."""
        ...

    @property
    def records(self) -> Records:
        """The records of the service, in the same database."""
        ...

    def transaction(self, *, writes: bool) -> AbstractAsyncContextManager[Store]:
        """A snapshot of the store: it does not see later writes of others. Its own writes are
        committed when the block ends, or rolled back if it raises.

        Use it rarely: while it lasts, the database cannot clean up old rows and, with `writes`,
        other writers may have to wait.
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
        """Create a session with its rows, blobs and inbox items, which get positions in this order.

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

    async def changed(self, *, since: int, limit: int = 1000) -> list[SessionRow]:
        """Sessions that changed at that time or later, the earliest change first."""
        ...

    async def latest(self, *, upto: int, limit: int) -> list[SessionRow]:
        """Sessions that changed at that time or earlier, the last change first."""
        ...

    async def in_scope(self, scope: SessionScope, session_ids: Sequence[str]) -> list[str]:
        """Those of the sessions that are in the scope, in any order."""
        ...

    async def rows(self, session_ids: Sequence[str]) -> list[SessionRow]:
        """Those of the sessions that exist, in any order."""
        ...

    async def first_pending(
        self, session_ids: Sequence[str], types: frozenset[str]
    ) -> dict[str, InboxItem]:
        """Of each of these sessions' inboxes, the first item of one of the types that is not folded
        yet. Those that this installation did not write are left out."""
        ...

    async def read_many(
        self, event_ranges: Sequence[tuple[str, int, int]], *, types: frozenset[str], limit: int
    ) -> list[tuple[int, Row]]:
        """The first `limit` events of these types of each range: a session and `after < seq <=
        upto`. In order of the ranges, each event with the index of its range."""
        ...

    async def pending_types(self, session_ids: Sequence[str]) -> list[tuple[str, str]]:
        """The types of the items in these sessions' inboxes that are not folded yet."""
        ...

    async def note_activity(self, *notes: ActivityNote) -> None:
        """Store what sessions do. A session whose log has another end stays as it is."""
        ...

    async def runnable(self, *, limit: int = 100) -> list[str]:
        """Sessions without a valid lease that have a pending inbox or whose holder died; the
        longest waiting first."""
        ...

    async def stale(self, *, updated_before: int, limit: int = 100) -> list[str]:
        """Sessions with no lease and an empty inbox that have not changed since then."""
        ...

    async def expire(self, session_ids: Sequence[str], *, updated_before: int) -> list[str]:
        """Delete the sessions that are still stale and have no forks; returns their ids."""
        ...

    async def append(self, append: Append) -> None:
        """Durable when this returns. Cancellation takes effect only after that.

        Raises: Fenced, Conflict, SessionNotFound.
        """
        ...

    async def read(self, event_range: EventRange) -> list[Row]: ...

    async def submit(self, session_id: str, item: InboxItem) -> InboxItem:
        """Add an item to the inbox. A repeated `client_id` returns the item of the first call.

        Marks the session as changed. An item with a `seq` is stored as already folded.
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
        """Items after position `after` that are not folded yet, in order of arrival. Those that
        this installation did not write are left out."""
        ...

    async def inbox(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[InboxItem]:
        """Like `pending`, but including folded and foreign items."""
        ...

    async def adopt(self, session_id: str, head: Head, items: Sequence[InboxItem]) -> None:
        """Make a session that ends at `head` this installation's own. `items` wait in its inbox:
        those with a MAC get it, and the others are removed.

        Raises: Conflict, SessionNotFound.
        """
        ...

    async def acquire(
        self,
        session_id: str,
        *,
        owner: str,
        seconds: float,
        instead_of: tuple[str, int] | None = None,
    ) -> Lease:
        """Take the lease if it is free or expired.

        `instead_of` is the owner and epoch of a `LeaseHeld` whose holder has certainly ended: its
        lease is taken before it expires, unless another process was faster.

        Raises: LeaseHeld, SessionNotFound.
        """
        ...

    async def renew(self, lease: Lease) -> None:
        """Raises: Fenced."""
        ...

    async def release(self, lease: Lease) -> None:
        """End the lease and fence its holder. No error if another writer has taken it over."""
        ...

    async def put_blob(self, session_id: str, digest: str, content: bytes) -> None: ...

    async def blob(self, digest: str) -> bytes:
        """Raises: BlobNotFound."""
        ...

    async def blobs(self, session_id: str) -> list[str]:
        """Digests of the blobs that this session itself refers to, sorted."""
        ...

    async def unindexed(self, session_id: str | None, *, limit: int) -> list[tuple[str, Row]]:
        """Events that are not indexed yet, with session ids, in order; `None`: of all sessions."""
        ...

    async def index(
        self, indexed_texts: Sequence[IndexedText], upto: Sequence[tuple[str, int]]
    ) -> None:
        """Index texts, and record the last indexed event of each session."""
        ...

    async def search(
        self,
        words: Sequence[str],
        *,
        event_ranges: Sequence[EventRange],
        limit: int,
        is_loose: bool = False,
        scope: SessionScope | None = None,
    ) -> list[LogSearchHit]:
        """Events that contain all words, best first. `is_loose`: at least one word, or a longer
        word that starts with it. `event_ranges` limits the search; empty means all sessions.
        `scope` limits it to certain sessions."""
        ...

    async def delete(self, session_id: str) -> None:
        """Delete a session completely. Raises: SessionNotFound, SessionHasForks."""
        ...

    def watch(self, session_id: str, *, is_inbox_only: bool = False) -> Watch:
        """A signal that the session, or only its inbox, may have changed in any process."""
        ...


async def all_sessions(store: Store) -> AsyncGenerator[SessionRow, None]:
    """All sessions, newest first, read page by page."""
    before: SessionRow | None = None
    while page := await store.sessions(before=before, limit=_SESSIONS_PER_PAGE):
        for session in page:
            yield session
        before = page[-1]
