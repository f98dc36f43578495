"""Records: what the service keeps beside the logs (agents, keys, schedules), as a store has it.

Mechanical, as `store.py` is: a record is an opaque body under a tenant, a kind and an id, with the
few columns that are looked things up by. What a body means is `service`'s. A record and a log
never have to change together: what is said about a session that must survive is in its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    tenant: str
    kind: str
    id: str
    created: int
    """Microseconds since 1970; lists are in this order, and by id within one moment."""
    updated: int
    body: bytes
    """JSON."""
    parent: str = ""
    """The id of what it belongs to: the vault of a credential."""
    name: str | None = None
    """Unique among those of its tenant, kind and parent."""
    label: str = ""
    """One word to filter by: a status, an agent."""
    due: int | None = None
    """When something is to be done about it, in microseconds since 1970."""
    is_archived: bool = False
    rev: int = 0
    """Counts its changes; 0 before it is first written. What is stored has one more than what was
    given to be written."""


class Put(Struct, frozen=True, kw_only=True):
    """A new record. Refused (`AlreadyThere`) if its id or name is taken."""

    row: RecordRow
    content: bytes | None = None
    """Large bytes kept beside it and read apart: the content of a file."""


class Replace(Struct, frozen=True, kw_only=True):
    """A changed record. Refused (`Stale`) unless its `rev` is still the stored one's."""

    row: RecordRow
    content: bytes | None = None
    """`None`: as it was."""


class Remove(Struct, frozen=True, kw_only=True):
    """Gone, with its content. Refused (`Stale`) unless its `rev` is still the stored one's."""

    row: RecordRow


RecordChange: TypeAlias = Put | Replace | Remove


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """Which records to list: all conditions hold together; `None` is no condition."""

    kind: str
    tenant: str | None = None
    parent: str | None = None
    label: str | None = None
    name_from: str | None = None
    """Names that begin with this; in the order of names instead of creation."""
    is_archived: bool | None = None
    created_from: int | None = None
    created_upto: int | None = None
    """Both inclusive."""
    due_upto: int | None = None
    """With something to be done by then; the longest due first."""
    after: RecordRow | None = None
    """The last one seen, in the order asked for."""
    order: Literal["asc", "desc"] = "desc"
    """Newest first, unless told otherwise; always ascending with `name_from` and `due_upto`."""
    limit: int = 100


class RecordWithContent(Struct, frozen=True, kw_only=True):
    """A record with its content, both of one moment."""

    row: RecordRow
    content: bytes | None


class Records(Protocol):
    """Texts are Unicode without NUL and whole numbers have 64 bits: what asks for a record by
    anything else finds none, and what would list or write by it is refused (`InvalidInput`)."""

    async def get(self, kind: str, id_: str) -> RecordRow:
        """Raises: NotFound."""
        ...

    async def named(self, kind: str, name: str, *, tenant: str, parent: str = "") -> RecordRow:
        """Raises: NotFound."""
        ...

    async def list(self, query: RecordQuery) -> list[RecordRow]: ...

    async def count(self, query: RecordQuery) -> int:
        """How many there are, whatever `limit` and `after` say."""
        ...

    async def write(self, *changes: RecordChange) -> tuple[RecordRow, ...]:
        """All of them or, when one is refused, none; each finds what those before it left. Gives
        back what they stored, in their order, without what was removed.

        Raises: AlreadyThere, Stale, NotFound (for one that is gone).
        """
        ...

    async def content(self, kind: str, id_: str) -> bytes:
        """Raises: NotFound."""
        ...

    async def tally(self, counters: Sequence[tuple[str, int]]) -> list[int]:
        """Add to counters, made on first use, and tell what each stands at now: after all that
        was added, also for one that is named twice. 0 only asks.

        Raises: InvalidInput: one would no longer fit; nothing was added.
        """
        ...

    async def forget_tallies(self, prefix: str) -> None:
        """Drop the counters whose names begin so."""
        ...

    async def everything(
        self, *, after: RecordRow | None = None, limit: int = 100
    ) -> list[RecordRow]:
        """Of all tenants and kinds, by kind and id; `after` is the last one seen. For backups."""
        ...

    async def whole(self, kind: str, id_: str) -> RecordWithContent:
        """Raises: NotFound."""
        ...

    async def tallies(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        """All counters, by name; `after` is the last name seen. For backups."""
        ...
