"""What this installation wrote itself: the one place where that is decided.

A store is a file that anybody can copy, commit or replace. So each session, each event that waits
in an inbox, each record and each version of a memory carries a message authentication code (MAC)
with the installation's key, which is not in the store. What has none, or a wrong one, is foreign:
it can be read and exported as text, but it cannot be continued, answered or obeyed until somebody
adopts it.

A session's MAC covers its id and the hash of its last event, and with it the whole chain, with the
events of its parents: rules, hooks, mode, workspace and agent are pinned in events, or in blobs
that events name by hash. The chain is recomputed when a session is held, once for each process.

Not covered: counters of budgets, rows that somebody deleted, and an earlier state of single rows
that this installation itself wrote.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TypeAlias

import msgspec
from msgspec import Raw

from mainspring.core.envelope import GENESIS, chained_digest, event_types, redacted_digest, type_of
from mainspring.core.errors import ForeignRecord, ForeignSession, MainspringError
from mainspring.core.events import EventsRedacted
from mainspring.log.lru_cache import LruCache
from mainspring.log.records import RecordRow, RecordWithContent
from mainspring.log.store import EventRange, Head, InboxItem, Row, SessionRow, Store

_MAC_BYTES = 32  # of keyed BLAKE2b
_PAGE = 2000  # events verified at once
_VERIFIED = 10_000  # sessions remembered as verified
_REDACTED = next(iter(event_types(EventsRedacted)))
_REDACTIONS = msgspec.json.Decoder(EventsRedacted)
_encode = msgspec.json.Encoder().encode
_Redacted: TypeAlias = tuple[str, int, str, str]
"""A redacted event: its session, seq and original hash, and the hash of its body."""


class _Issuer:
    """Only this module has one, so that a proof made anywhere else fails the type check."""


_ISSUER = _Issuer()


class OwnLog:
    """The proof that this installation wrote a session's log. Whatever lets something in a log take
    effect (rules, hooks, the agent, the next append) needs it."""

    __slots__ = ("session_id",)

    def __init__(self, session_id: str, issuer: _Issuer) -> None:
        assert issuer is _ISSUER
        self.session_id = session_id


class Provenance:
    """The key of an installation, for one open store."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._verified: LruCache[str, Head] = LruCache(_VERIFIED)

    def log_mac(self, session_id: str, head: Head) -> bytes:
        """For a session whose log ends at `head`."""
        return self._mac(b"log", (session_id, head.seq, head.hash))

    def ancestor_mac(self, own_log: OwnLog, session_id: str, head: Head) -> bytes:
        """For the beginning of a session that an own log continues: its chain covers that."""
        assert own_log.session_id != session_id
        return self.log_mac(session_id, head)

    def item_mac(self, session_id: str, item: InboxItem) -> bytes:
        """For a client's event that waits in the inbox of a session."""
        return self._mac(b"inbox", (session_id, *item[:8]))

    def record_mac(self, row: RecordRow) -> bytes:
        return self._mac(b"record", _record_fields(row))

    def note_mac(self, fields: tuple[object, ...]) -> str:
        """For a version of a memory in a folder, as text: its ledger is a file of text."""
        return self._mac(b"note", fields).hex()

    def is_own_note(self, fields: tuple[object, ...], mac: str) -> bool:
        return _equal(mac.encode(), self.note_mac(fields).encode())

    def _mac(self, kind: bytes, fields: tuple[object, ...]) -> bytes:
        # JSON, so that fields cannot run into each other
        return hashlib.blake2b(
            _encode(fields), digest_size=_MAC_BYTES, key=self._key, person=kind
        ).digest()

    def is_own(self, session: SessionRow) -> bool:
        """Whether this installation wrote the end of this log. Enough for lists; to use a session,
        hold it."""
        return _equal(session.mac, self.log_mac(session.id, session.head))

    def is_own_item(self, session_id: str, item: InboxItem) -> bool:
        return _equal(item.mac, self.item_mac(session_id, item))

    def is_own_record(self, row: RecordRow) -> bool:
        return _equal(row.mac, self.record_mac(row))

    def own_record(self, row: RecordRow) -> RecordRow:
        """Raises: ForeignRecord."""
        if not self.is_own_record(row):
            raise ForeignRecord(row.kind, row.id)
        return row

    def own_content(self, record: RecordWithContent) -> RecordWithContent:
        """Raises: ForeignRecord."""
        row = self.own_record(record.row)
        if record.content is not None and content_hash(record.content) != row.content_hash:
            raise ForeignRecord(row.kind, row.id)
        return record

    def note_written(self, own_log: OwnLog, head: Head) -> None:
        """This process continued the log up to here, so there is nothing to recompute."""
        self._verified.put(own_log.session_id, head)

    def note_created(self, session_id: str, head: Head) -> None:
        """This process began the log, without a parent."""
        self._verified.put(session_id, head)

    def received(self, session_id: str) -> OwnLog:
        """After `session.received` was appended: nothing before it takes effect."""
        return OwnLog(session_id, _ISSUER)

    async def require_own(self, store: Store, session: SessionRow) -> OwnLog:
        """Raises: ForeignSession."""
        if not self.is_own(session):
            raise ForeignSession(session.id)
        if self._verified.get(session.id) != session.head:
            await check_chain(store, session)
            self._verified.put(session.id, session.head)
        return OwnLog(session.id, _ISSUER)


def _equal(mac: bytes | None, expected: bytes) -> bool:
    return mac is not None and hmac.compare_digest(mac, expected)


def _record_fields(row: RecordRow) -> tuple[object, ...]:
    return (
        *(row.tenant, row.kind, row.id, row.created, row.updated, row.body, row.parent, row.name),
        *(row.label, row.due, row.is_archived, row.rev, row.content_hash),
    )


def content_hash(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


async def check_chain(store: Store, session: SessionRow) -> None:
    """Recompute a session's hash chain from its first event to its head.

    Raises: ForeignSession: a row was changed, added or removed.
    """
    lineage = [session]
    while (parent_id := lineage[0].parent_id) is not None:
        lineage.insert(0, await store.session(parent_id))
    chain = _Chain()
    for at, owner in enumerate(lineage):
        upto = session.head.seq if owner is session else lineage[at + 1].parent_seq
        if owner.parent_seq != chain.head.seq:
            raise ForeignSession(session.id)
        await chain.read(store, owner, upto)
    if chain.head != session.head:
        raise ForeignSession(session.id)
    unexplained = chain.redacted - chain.redactions
    for ancestor in lineage[:-1]:  # a log may record a redaction after the fork
        if any(item[0] == ancestor.id for item in unexplained):
            unexplained -= await _redactions(store, ancestor)
    if unexplained:
        raise ForeignSession(session.id)


async def _redactions(store: Store, session: SessionRow) -> set[_Redacted]:
    """The redactions that a session's own log records. Raises: ForeignSession."""
    await check_chain(store, session)
    chain = _Chain()
    chain.head = Head(session.parent_seq, b"")
    await chain.read(store, session, session.head.seq, is_chained=False)
    return chain.redactions


class _Chain:
    """Reads rows without decoding events: about 3 microseconds for each."""

    def __init__(self) -> None:
        self.head = Head(0, GENESIS)
        self.redacted: set[_Redacted] = set()
        self.redactions: set[_Redacted] = set()

    async def read(
        self, store: Store, session: SessionRow, upto: int, *, is_chained: bool = True
    ) -> None:
        """Raises: ForeignSession."""
        first = session.parent_seq + 1
        while self.head.seq < upto:
            page = EventRange(session_id=session.id, after=self.head.seq, upto=upto, limit=_PAGE)
            rows = await store.read(page)
            if not rows:
                raise ForeignSession(session.id)
            for row in rows:
                is_next = (row.seq, row.prev) == (self.head.seq + 1, self.head.hash)
                begins = (row.thread_id, row.time) == (session.thread_id, session.created)
                if (is_chained and not is_next) or (row.seq == first and not begins):
                    raise ForeignSession(session.id)
                self._take(session.id, row)

    def _take(self, session_id: str, row: Row) -> None:
        body = row.body.encode()
        if not body.startswith(b'{"type":"%s"' % row.type.encode()) and _type(body) != row.type:
            raise ForeignSession(session_id)  # reads filter by this column
        if (digest := redacted_digest(body)) is not None:
            hashes = digest.hex(), hashlib.sha256(body).hexdigest()
            self.redacted.add((session_id, row.seq, *hashes))
        else:
            sender = () if row.sender is None else (Raw(row.sender.encode()),)
            fields = (row.version, session_id, row.seq, row.id, row.thread_id, row.time, *sender)
            digest = chained_digest(row.prev, fields, body)
        if row.type == _REDACTED:
            self._note_redactions(session_id, body)
        self.head = Head(row.seq, digest)

    def _note_redactions(self, session_id: str, body: bytes) -> None:
        try:
            redactions = _REDACTIONS.decode(body).redactions
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return  # it then explains no redacted event
        for item in redactions:
            self.redactions.add((session_id, item.seq, item.digest, item.body_sha256))


def _type(body: bytes) -> str | None:
    try:
        return type_of(body)
    except MainspringError:
        return None


PROCESS_KEY = secrets.token_bytes(_MAC_BYTES)
"""The key of a process that cannot keep one: it trusts only what it wrote itself."""
