"""The audit: what was done to the service, by whom, from where. No content and no secret.

Each tenant has one chain: an entry holds the hash of the one before it, so that none can be
changed or taken out unseen. Who writes takes the next number by its unique name; of two processes
that want the same one, the second reads the end of the chain again. In a process, all that waits
is written together.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
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
from mainspring.log.records import Put, RecordQuery, RecordRow, Records, Remove, Replace
from mainspring.service.access.principal import Principal
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import IndexColumns, ListQuery, Repository

KIND = "audit"
_ANCHOR = "audit_anchor"
_GENESIS_HASH = "0" * 64
_TRIES = 32
_BATCH = 500
_TENANTS_KEPT = 10_000

AuditActor: TypeAlias = Literal["human", "agent", "worker", "nobody"]


class AuditAction(Struct, frozen=True, kw_only=True):
    """What is to be noted."""

    operation: str
    """`post /v1/agents/{agent_id}`, or the command of somebody at the machine: `keys create`."""
    status: int
    """As HTTP has it."""
    key_id: str = ""
    key_name: str = ""
    actor: AuditActor = "nobody"
    agent_id: str | None = None
    """The agent that did it."""
    targets: dict[str, str] = {}
    """The ids in the path."""
    made: str | None = None
    """The id of what the answer was about."""
    request_id: str = ""
    address: str = ""


class AuditEntry(AuditAction, frozen=True, kw_only=True):
    id: str
    seq: int
    """From 1, without a gap."""
    time: datetime
    """Never before that of the entry before."""
    tenant_id: str
    """Empty for what nobody was known to have asked."""
    previous: str
    """The hash of the entry before."""
    hash: str = ""
    """SHA-256 of all of this, as JSON with sorted names and without the hash itself."""
    type: Literal["audit_entry"] = "audit_entry"


class AuditAnchor(Struct, frozen=True, kw_only=True):
    """The last entry that was let go by age: where the chain is hung up now."""

    id: str
    seq: int
    hash: str


class AuditVerification(Struct, frozen=True, kw_only=True):
    tenant_id: str
    entries: int
    last_seq: int
    head: str
    """The hash of the last entry. Kept elsewhere, it shows later that nothing was cut off."""
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(slots=True)
class _PendingEntry:
    audit_action: AuditAction
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
    chain_end: _ChainEnd | None = None
    """As this process knows it."""


class Audit:
    def __init__(
        self,
        records: Records,
        *,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._records = records
        self._clock = clock
        self._new_id = new_id
        self._repository = Repository(
            records, KIND, AuditEntry, columns=_index_columns, clock=clock
        )
        self._anchors = Repository(records, _ANCHOR, AuditAnchor, clock=clock)
        self._commits: dict[str, GroupCommit[_PendingEntry]] = {}

    async def note(self, tenant: str, audit_action: AuditAction) -> None:
        """Durable when this returns.

        Raises: StoreFailed, Stale: others wrote so much that there was no getting in.
        """
        if (commits := self._commits.get(tenant)) is None:
            if len(self._commits) >= _TENANTS_KEPT:
                self._commits.pop(next(iter(self._commits)))
            commits = GroupCommit(partial(self._commit, _Chain(tenant)))
            self._commits[tenant] = commits
        job = _PendingEntry(audit_action, self._clock())
        await commits.run(job)
        if job.error is not None:
            raise job.error

    async def page(self, tenant: str, list_query: ListQuery) -> Page[AuditEntry]:
        return await self._repository.page(tenant, list_query)

    async def entries(self, tenant: str) -> AsyncGenerator[AuditEntry, None]:
        """All of them, from the first."""
        after: RecordRow | None = None
        while found := await self._records.list(
            RecordQuery(kind=KIND, tenant=tenant, order="asc", after=after, limit=_BATCH)
        ):
            for record in found:
                yield self._repository.read(record)
            after = found[-1]

    async def verify(self, tenant: str, *, head: str | None = None) -> AuditVerification:
        """Whether the chain is whole, and has the entry with a hash that was kept elsewhere."""
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
                f"there is no entry with the hash {head}: the end was cut off or remade"
            )
        return AuditVerification(
            tenant_id=tenant,
            entries=count,
            last_seq=last.seq,
            head=last.hash,
            problems=tuple(problems[:100]),
        )

    async def prune(self, tenant: str, *, keep: timedelta) -> int:
        """Let go what is older; the chain is hung up behind it. How many went."""
        upto = to_micros(self._clock() - keep)
        gone = 0
        while found := await self._records.list(
            RecordQuery(kind=KIND, tenant=tenant, order="asc", created_upto=upto, limit=_BATCH)
        ):
            last = self._repository.read(found[-1])
            anchor = AuditAnchor(id=_anchor_id(tenant), seq=last.seq, hash=last.hash)
            kept = await self._anchor_record(tenant)
            hung: Put | Replace
            if kept is None:
                hung = self._anchors.put_change(tenant, anchor)
            else:
                hung = self._anchors.replace_change(kept, anchor)
            try:
                await self._records.write(hung, *(Remove(record_row=record) for record in found))
            except ServiceError:  # another process is at it
                return gone
            gone += len(found)
        return gone

    async def _commit(self, chain: _Chain, entries: Sequence[_PendingEntry]) -> None:
        try:
            await self._extend(chain, entries)
        except MainspringError as error:
            chain.chain_end = None
            for job in entries:
                job.error = error

    async def _extend(self, chain: _Chain, entries: Sequence[_PendingEntry]) -> None:
        for _ in range(_TRIES):
            end = chain.chain_end or await self._read_end(chain.tenant)
            puts: list[Put] = []
            for job in entries:
                put, end = self._link(chain.tenant, job, end)
                puts.append(put)
            try:
                await self._records.write(*puts)
            except AlreadyExists:  # another process has taken the number
                chain.chain_end = None
                continue
            chain.chain_end = end
            return
        raise StaleVersion("the audit: others kept writing")

    def _link(
        self, tenant: str, pending_entry: _PendingEntry, chain_end: _ChainEnd
    ) -> tuple[Put, _ChainEnd]:
        created = max(
            to_micros(pending_entry.moment), chain_end.created + 1
        )  # lists are in the chain's order
        bare = AuditEntry(
            id=self._new_id("audit"),
            seq=chain_end.seq + 1,
            time=from_micros(created),
            tenant_id=tenant,
            previous=chain_end.hash,
            **msgspec.structs.asdict(pending_entry.audit_action),
        )
        entry = replace(bare, hash=_entry_hash(bare))
        record = RecordRow(
            tenant=tenant,
            kind=KIND,
            id=entry.id,
            created=created,
            updated=created,
            body=msgspec.json.encode(entry),
            name=_index_columns(entry).name,
            label=_index_columns(entry).label,
        )
        return Put(record_row=record), _ChainEnd(entry.seq, entry.hash, created)

    async def _read_end(self, tenant: str) -> _ChainEnd:
        found = await self._records.list(RecordQuery(kind=KIND, tenant=tenant, limit=1))
        if not found:
            return await self._anchor_end(tenant)
        entry = self._repository.read(found[0])
        return _ChainEnd(entry.seq, entry.hash, found[0].created)

    async def _anchor_end(self, tenant: str) -> _ChainEnd:
        record = await self._anchor_record(tenant)
        if record is None:
            return _ChainEnd()
        anchor = self._anchors.read(record)
        return _ChainEnd(anchor.seq, anchor.hash)

    async def _anchor_record(self, tenant: str) -> RecordRow | None:
        found = await self._records.list(RecordQuery(kind=_ANCHOR, tenant=tenant, limit=1))
        return found[0] if found else None


def attribute_to(audit_action: AuditAction, who: Principal | None) -> AuditAction:
    """With who did it."""
    if who is None or not who.key_id:
        return audit_action
    return replace(
        audit_action,
        key_id=who.key_id,
        key_name=who.name,
        actor="worker" if who.environment_id else "agent" if who.acting_agent else "human",
        agent_id=who.acting_agent,
    )


def _index_columns(entry: AuditEntry) -> IndexColumns:
    return IndexColumns(name=f"{entry.seq:015d}", label=entry.key_id)


def _anchor_id(tenant: str) -> str:
    return f"anchor_{tenant}"


def _entry_hash(entry: AuditEntry) -> str:
    told = msgspec.json.encode(replace(entry, hash=""), order="sorted")
    return hashlib.sha256(told).hexdigest()


def _chain_problems(last: _ChainEnd, entry: AuditEntry) -> list[str]:
    found: list[str] = []
    if entry.seq != last.seq + 1:
        found.append(f"entry {entry.seq} follows {last.seq}: what was between is gone")
    elif entry.previous != last.hash:
        found.append(f"entry {entry.seq} does not go on from {last.seq}")
    if entry.hash != _entry_hash(entry):
        found.append(f"entry {entry.seq} was changed")
    return found
