"""Records: what the service stores beside the logs, such as agents, keys and schedules.

The interface is as low-level as `store.py`: a record is an opaque body under a tenant, a kind and
an id, with a few columns to query by. `service` interprets the body. No transaction spans a
record and a log: everything about a session that must survive is in its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct


@dataclass(frozen=True, slots=True)
class RecordRow:
    tenant: str
    kind: str
    id: str
    created: int
    """Microseconds since 1970. Lists are ordered by this, then by id."""
    updated: int
    body: bytes
    """JSON."""
    parent: str = ""
    """The id of the record it belongs to, such as the vault of a credential."""
    name: str | None = None
    """Unique within its tenant, kind and parent."""
    label: str = ""
    """A value to filter by, such as a status or an agent."""
    due: int | None = None
    """When a background job must handle it, in microseconds since 1970."""
    is_archived: bool = False
    rev: int = 0
    """The number of changes; 0 before the first write. The store adds one with each write."""
    content_hash: bytes | None = field(default=None, compare=False)
    """The hash of its content; the store sets it."""
    mac: bytes | None = field(default=None, compare=False)
    """Proves that this installation wrote it (`log/provenance.py`); the store sets it."""


SESSION_KIND = "session"
"""The kind of session records. A session and its record have the same id."""
STATUS_FILTER = "status"
"""The filter of session records that the store keeps itself: with every event that changes the
status of the session, and with every item of its inbox that makes it run."""
FilterValues: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values that a list can be filtered by. A name may have several values."""


class Put(Struct, frozen=True, kw_only=True):
    """A new record. `AlreadyExists` if its id or name is taken."""

    row: RecordRow
    content: bytes | None = None
    """Large content, such as a file's, that is stored and read separately."""
    filters: FilterValues | None = None
    """`None`: it cannot be found by a filter, until `add_filters`."""
    keeps_mac: bool = False
    """It comes from a backup: it stays this installation's own, or foreign."""


class Replace(Struct, frozen=True, kw_only=True):
    """A changed record. `StaleVersion` if its `rev` is no longer the stored one."""

    row: RecordRow
    content: bytes | None = None
    """`None` leaves it unchanged."""
    filters: FilterValues | None = None
    """`None` leaves them unchanged; give them if it was or will be archived."""


class Remove(Struct, frozen=True, kw_only=True):
    """A record to remove. `StaleVersion` if its `rev` is no longer the stored one."""

    row: RecordRow


RecordChange: TypeAlias = Put | Replace | Remove


class RecordFilter(Struct, frozen=True):
    """Records with one of these values."""

    name: str
    values: tuple[tuple[str, bool], ...]
    """Each with whether the record must be archived, or must not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """Which records to list. A record must meet all conditions; `None` is no condition."""

    kind: str
    tenant: str | None = None
    parent: str | None = None
    label: str | None = None
    name_from: str | None = None
    """Only names with this prefix, ordered by name instead of creation."""
    is_archived: bool | None = None
    filters: tuple[RecordFilter, ...] = ()
    """Found by an index, whatever the number of records that do not match. They need a `tenant`,
    exclude the conditions above, and say themselves whether a record is archived."""
    created_from: int | None = None
    created_upto: int | None = None
    """Both inclusive."""
    due_upto: int | None = None
    """Only records that are due by this time, the earliest first."""
    after: RecordRow | None = None
    """The last record of the previous page, in the order of this query."""
    order: Literal["asc", "desc"] = "desc"
    """Newest first by default; always ascending with `name_from` and `due_upto`."""
    limit: int = 100


class RecordWithContent(Struct, frozen=True, kw_only=True):
    """A consistent pair of a record and its content."""

    row: RecordRow
    content: bytes | None


class Records(Protocol):
    """`get`, `named`, `list` and `content` raise `ForeignRecord` for records that this installation
    did not write; `everything` and `whole` return them, too.

    Texts are Unicode without NUL, and integers have 64 bits. With any other value, reading a
    record raises `NotFound`; listing and writing raise `InvalidInput`."""

    async def get(self, kind: str, id_: str) -> RecordRow:
        """Raises: NotFound."""
        ...

    async def named(self, kind: str, name: str, *, tenant: str, parent: str = "") -> RecordRow:
        """Raises: NotFound."""
        ...

    async def list(self, query: RecordQuery) -> list[RecordRow]: ...

    async def ids(self, query: RecordQuery) -> list[tuple[int, str]]:
        """As `list`, but only when each was created, and its id."""
        ...

    async def count(self, query: RecordQuery) -> int:
        """The number of matches; `limit` and `after` are ignored."""
        ...

    async def write(self, *changes: RecordChange) -> tuple[RecordRow, ...]:
        """Apply changes in order, all or none; each sees the effect of those before it. Returns the
        stored records in the same order, without the removed ones.

        Raises: AlreadyExists, StaleVersion, NotFound (a record was removed).
        """
        ...

    async def without_filters(self, kind: str, *, after: str, limit: int) -> list[RecordRow]:
        """Records that were put without filters, by an older Mainspring or from a backup, in the
        order of their ids; `after` is the last id seen."""
        ...

    async def add_filters(self, *changes: tuple[RecordRow, FilterValues]) -> None:
        """Add the filters of records that have none. A record that has changed stays as it is."""
        ...

    async def content(self, kind: str, id_: str) -> bytes:
        """Raises: NotFound."""
        ...

    async def tally(self, counters: Sequence[tuple[str, int]]) -> list[int]:
        """Add to counters, creating them on first use, and return their new values. If a counter
        occurs twice, both amounts are added. Adding 0 only reads.

        Raises: InvalidInput: a counter would overflow; nothing was added.
        """
        ...

    async def forget_tallies(self, prefix: str) -> None:
        """Delete the counters whose names have this prefix."""
        ...

    async def everything(
        self, *, after: RecordRow | None = None, limit: int = 100
    ) -> list[RecordRow]:
        """Records of all tenants and kinds, by kind and id. For backups."""
        ...

    async def whole(self, kind: str, id_: str) -> RecordWithContent:
        """Raises: NotFound."""
        ...

    async def tallies(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        """All counters, by name; `after` is the last name seen. For backups."""
        ...
