"""The audit log: changes and refused requests, by whom and from where. No content, no secrets.

Each tenant has one chain: an entry contains the hash of the one before it, so that none can be
changed or removed unnoticed. A writer claims the next number by its unique name; if two processes
claim the same number, the second reads the end of the chain again. All entries that wait in a
process are written together.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock, from_micros, to_micros
from mainspring.core.errors import AlreadyExists, MainspringError, ServiceError, StaleVersion
from mainspring.log.group_commit import GroupCommit
from mainspring.log.records import Put, RecordQuery, RecordRow, Records, Remove
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.principal import Principal
from mainspring.service.access.tenants import PLATFORM_TENANT, Tenants
from mainspring.service.storage.metadata import copy_fields
from mainspring.service.storage.repository import (
    IndexColumns,
    ListQuery,
    Repository,
    all_pages,
)

KIND = "audit"
_ANCHOR = "audit_anchor"
_GENESIS_HASH = "0" * 64
_TRIES = 32  # appends to a chain that others write, too
_BATCH = 500  # entries read at once
_TENANTS_KEPT = 10_000  # whose last entry is cached

AuditActor: TypeAlias = Literal["human", "agent", "worker", "nobody"]


class AuditAction(Struct, frozen=True, kw_only=True):
    operation: str
    """`post /v1/agents/{agent_id}`, or a command on the server: `keys create`."""
    status: int
    """The HTTP status."""
    key_id: str = ""
    key_name: str = ""
    actor: AuditActor = "nobody"
    agent_id: str | None = None
    """The agent that did it."""
    targets: dict[str, str] = {}
    """The ids in the path."""
    made: str | None = None
    """The id of the resource in the response."""
    request_id: str = ""
    address: str = ""


class AuditEntry(AuditAction, frozen=True, kw_only=True):
    id: str
    seq: int
    """From 1, without gaps."""
    time: datetime
    """Never earlier than that of the previous entry."""
    tenant_id: str
    """Empty for requests without a principal."""
    previous: str
    """The hash of the previous entry."""
    hash: str = ""
    """SHA-256 of the whole entry, as JSON with sorted names and without the hash itself."""
    type: Literal["audit_entry"] = "audit_entry"


class AuditAnchor(Struct, frozen=True, kw_only=True):
    """The last entry that was pruned: the chain now starts after it."""

    id: str
    seq: int
    hash: str


class AuditVerification(Struct, frozen=True, kw_only=True):
    tenant_id: str
    entries: int
    last_seq: int
    head: str
    """The hash of the last entry. Stored elsewhere, it proves later that nothing was cut off."""
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(slots=True)
class _PendingEntry:
    action: AuditAction
    moment: datetime
    error: MainspringError | None = None


@dataclass(frozen=True, slots=True)
class _ChainEnd:
    seq: int = 0
    hash: str = _GENESIS_HASH
    created: int = 0


@dataclass(slots=True)
class _Chain:
    tenant: str
    end: _ChainEnd | None = None
    """The end of the chain, as far as this process knows; `None`: read it again."""


class Audit:
    def __init__(self, records: Records, *, clock: Clock = clocks.now) -> None:
        self._records = records
        self._clock = clock
        self._repository = Repository(
            records, KIND, AuditEntry, columns=_index_columns, clock=clock
        )
        self.page = self._repository.page
        self._anchors = Repository(records, _ANCHOR, AuditAnchor, clock=clock)
        self._commits: dict[str, GroupCommit[_PendingEntry]] = {}

    async def note(self, tenant: str, action: AuditAction) -> None:
        """Write an entry; it is durable when this returns.

        Raises: StoreFailed, StaleVersion: other processes kept writing.
        """
        if (commits := self._commits.get(tenant)) is None:
            if len(self._commits) >= _TENANTS_KEPT:
                self._commits.pop(next(iter(self._commits)))
            commits = GroupCommit(partial(self._commit, _Chain(tenant)))
            self._commits[tenant] = commits
        job = _PendingEntry(action, self._clock())
        await commits.run(job)
        if job.error is not None:
            raise job.error

    async def entries(self, tenant: str) -> AsyncGenerator[AuditEntry, None]:
        """All entries, from the first."""
        after: RecordRow | None = None
        while rows := await self._records.list(
            RecordQuery(kind=KIND, tenant=tenant, order="asc", after=after, limit=_BATCH)
        ):
            for row in rows:
                yield self._repository.read(row)
            after = rows[-1]

    async def verify(self, tenant: str, *, head: str | None = None) -> AuditVerification:
        """Whether the chain is complete, and has an entry with the hash `head`."""
        last = await self._anchor_end(tenant)
        problems: list[str] = []
        is_met = head is None or head == last.hash
        count = 0
        async for entry in self.entries(tenant):
            problems += _chain_problems(last, entry)
            last = _ChainEnd(entry.seq, entry.hash)
            is_met = is_met or entry.hash == head
            count += 1
        if not is_met:
            problems.append(
                f"there is no entry with the hash {head}: the end was removed or rewritten"
            )
        return AuditVerification(
            tenant_id=tenant,
            entries=count,
            last_seq=last.seq,
            head=last.hash,
            problems=tuple(problems[:100]),
        )

    async def prune(self, tenant: str, *, keep: timedelta) -> int:
        """Delete older entries; the chain then starts after them. Returns how many."""
        upto = to_micros(self._clock() - keep)
        count = 0
        while rows := await self._records.list(
            RecordQuery(kind=KIND, tenant=tenant, order="asc", created_upto=upto, limit=_BATCH)
        ):
            last = self._repository.read(rows[-1])
            anchor = AuditAnchor(id=f"anchor_{tenant}", seq=last.seq, hash=last.hash)
            change = self._anchors.save_change(tenant, await self._anchor_row(tenant), anchor)
            try:
                await self._records.write(change, *(Remove(row=row) for row in rows))
            except ServiceError:  # another process does the same
                return count
            count += len(rows)
        return count

    async def _commit(self, chain: _Chain, entries: Sequence[_PendingEntry]) -> None:
        failure: MainspringError = StaleVersion(
            "the audit: other processes kept writing; try again"
        )
        for _ in range(_TRIES):
            try:
                end = chain.end or await self._read_end(chain.tenant)
                puts: list[Put] = []
                for job in entries:
                    change, end = self._link(chain.tenant, job, end)
                    puts.append(change)
                await self._records.write(*puts)
            except AlreadyExists:  # another process has taken the number
                chain.end = None
            except MainspringError as error:
                failure = error
                break
            else:
                chain.end = end
                return
        chain.end = None
        for job in entries:
            job.error = failure

    def _link(self, tenant: str, pending: _PendingEntry, end: _ChainEnd) -> tuple[Put, _ChainEnd]:
        # lists must be in the order of the chain
        created = max(to_micros(pending.moment), end.created + 1)
        unhashed = copy_fields(
            AuditEntry,
            pending.action,
            id=ids.new_id("audit"),
            seq=end.seq + 1,
            time=from_micros(created),
            tenant_id=tenant,
            previous=end.hash,
        )
        entry = replace(unhashed, hash=_entry_hash(unhashed))
        change = self._repository.put_change(tenant, entry)
        return change, _ChainEnd(entry.seq, entry.hash, created)

    async def _read_end(self, tenant: str) -> _ChainEnd:
        rows = await self._records.list(RecordQuery(kind=KIND, tenant=tenant, limit=1))
        if not rows:
            return await self._anchor_end(tenant)
        entry = self._repository.read(rows[0])
        return _ChainEnd(entry.seq, entry.hash, rows[0].created)

    async def _anchor_end(self, tenant: str) -> _ChainEnd:
        row = await self._anchor_row(tenant)
        if row is None:
            return _ChainEnd()
        anchor = self._anchors.read(row)
        return _ChainEnd(anchor.seq, anchor.hash)

    async def _anchor_row(self, tenant: str) -> RecordRow | None:
        rows = await self._records.list(RecordQuery(kind=_ANCHOR, tenant=tenant, limit=1))
        return rows[0] if rows else None


async def delete_expired_data(
    records: Records, *, keep_audit: timedelta | None, clock: Clock = clocks.now
) -> None:
    """Delete old audit entries and budget counters of all tenants; `None` keeps the audit forever.
    Call it once a day, in any number of processes."""
    await DailyBudgetLedger(records, clock=clock).delete_expired()
    if keep_audit is None:
        return
    audit = Audit(records, clock=clock)
    await audit.prune(PLATFORM_TENANT, keep=keep_audit)
    for tenant in await all_pages(Tenants(records, clock=clock).page, ListQuery(limit=100)):
        await audit.prune(tenant.id, keep=keep_audit)


def attribute_to(action: AuditAction, who: Principal | None) -> AuditAction:
    """The action with its principal."""
    if who is None or not who.key_id:
        return action
    return replace(
        action,
        key_id=who.key_id,
        key_name=who.name,
        actor="worker" if who.environment_id else "agent" if who.acting_agent else "human",
        agent_id=who.acting_agent,
    )


def _index_columns(entry: AuditEntry) -> IndexColumns:
    return IndexColumns(name=f"{entry.seq:015d}", label=entry.key_id, created=entry.time)


def _entry_hash(entry: AuditEntry) -> str:
    encoded = msgspec.json.encode(replace(entry, hash=""), order="sorted")
    return hashlib.sha256(encoded).hexdigest()


def _chain_problems(last: _ChainEnd, entry: AuditEntry) -> list[str]:
    problems: list[str] = []
    if entry.seq != last.seq + 1:
        problems.append(
            f"entry {entry.seq} follows {last.seq}: the entries between them are missing"
        )
    elif entry.previous != last.hash:
        problems.append(f"entry {entry.seq} does not continue entry {last.seq}")
    if entry.hash != _entry_hash(entry):
        problems.append(f"entry {entry.seq} was changed")
    return problems
