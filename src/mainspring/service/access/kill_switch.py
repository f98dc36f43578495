"""The kill switch: stops an agent, a tenant or everything until a person resumes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists
from mainspring.core.ids import AgentId
from mainspring.log.records import RecordQuery, Records
from mainspring.service.access.principal import Principal
from mainspring.service.access.tenants import Tenants
from mainspring.service.storage.repository import Repository
from mainspring.service.storage.ttl_cache import TtlCache

HALT_CACHE_SECONDS = 2.0
"""How long a stop may take to reach every worker and API process."""
ALL_TENANTS = ""
"""The tenant of the halt that stops all tenants."""
_MAX_HALTS = 10_000  # of all tenants


class Halt(Struct, frozen=True, kw_only=True):
    id: str
    tenant_id: str
    """Empty if everything is stopped."""
    agent_id: str | None
    """`null`: all agents of the tenant."""
    reason: str
    created_by: str
    created_at: datetime
    type: Literal["halt"] = "halt"


class CreateHalt(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent_id: Annotated[AgentId, Meta(min_length=1, max_length=256)] | None = None
    reason: Annotated[str, Meta(max_length=1024)] = ""


class Halts:
    """Checked before a session runs and periodically while it runs; reads a cache."""

    def __init__(
        self,
        records: Records,
        *,
        clock: Clock = clocks.now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._repository = Repository(records, "halt", Halt, clock=clock)
        self._clock = clock
        self._new_cache = partial(
            TtlCache, self._find_reason, seconds=HALT_CACHE_SECONDS, monotonic=monotonic
        )
        self._recent: TtlCache[tuple[str, str | None], str | None] = self._new_cache()
        self._tenants = Tenants(records, clock=clock)

    async def halt(self, tenant: str, principal: Principal, request: CreateHalt) -> Halt:
        """Stop one agent of a tenant, all its agents, or all tenants. Idempotent."""
        halt = Halt(
            id=_id_of(tenant, request.agent_id),
            tenant_id=tenant,
            agent_id=request.agent_id,
            reason=request.reason,
            created_by=principal.name or principal.key_id,
            created_at=self._clock(),
        )
        self._recent = self._new_cache()
        try:
            return await self._repository.put(tenant, halt)
        except AlreadyExists:
            return await self._repository.get(tenant, halt.id)

    async def resume(self, tenant: str, principal: Principal, agent_id: str | None = None) -> None:
        """Raises: NotFound: it was not stopped. Forbidden: an agent asks."""
        principal.require_human()
        self._recent = self._new_cache()
        await self._repository.remove(tenant, _id_of(tenant, agent_id))

    async def of(self, tenant: str) -> list[Halt]:
        """The active halts of a tenant."""
        return [*await self._list_halts(ALL_TENANTS), *await self._list_halts(tenant)]

    async def everything(self) -> list[Halt]:
        return await self._list_halts(None)

    async def why_stopped(self, tenant: str, agent_id: str | None = None) -> str | None:
        """The reason for the halt; `None` if it may run."""
        return await self._recent.get((tenant, agent_id))

    async def is_stopped(self, tenant: str, agent_id: str | None = None) -> bool:
        return await self.why_stopped(tenant, agent_id) is not None

    async def _find_reason(self, scope: tuple[str, str | None]) -> str | None:
        """Each halt is read by its own id, so that none is missed, however many there are."""
        tenant, agent_id = scope
        kind = self._repository.kind
        if await self._repository.records.ids(RecordQuery(kind=kind, limit=1)):  # usually none
            ids = (_id_of(ALL_TENANTS), _id_of(tenant), _id_of(tenant, agent_id))
            for id_ in dict.fromkeys(ids):
                owner = ALL_TENANTS if id_ == ids[0] else tenant
                if (halt := await self._repository.find(owner, id_)) is not None:
                    return _message(halt)
        is_disabled = await self._tenants.is_disabled(tenant)
        return f"the tenant {tenant} is disabled" if is_disabled else None

    async def _list_halts(self, tenant: str | None) -> list[Halt]:
        query = RecordQuery(kind=self._repository.kind, tenant=tenant, limit=_MAX_HALTS)
        return [self._repository.read(row) for row in await self._repository.records.list(query)]


def _id_of(tenant: str, agent_id: str | None = None) -> str:
    """One id for each agent or tenant that can be stopped."""
    if tenant == ALL_TENANTS:
        return "halt_*"
    return f"halt_{tenant}" if agent_id is None else f"halt_{tenant}.{agent_id}"


def _message(halt: Halt) -> str:
    what = f"the agent {halt.agent_id}" if halt.agent_id else "the tenant"
    if halt.tenant_id == ALL_TENANTS:
        what = "everything"
    why = f": {halt.reason}" if halt.reason else ""
    return f"{what} was stopped by {halt.created_by}{why}"
