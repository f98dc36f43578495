"""`/v1/mainspring/audit`: the audit log of a tenant, and its verification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from msgspec import Struct

from mainspring.core.ids import KeyId
from mainspring.edges.api.route import ApiCall, Empty, RouteOptions, Timestamp, list_query, route
from mainspring.service.access.audit import Audit, AuditEntry, AuditVerification
from mainspring.service.storage.pagination import Limit, Page


class ListAudit(Struct, frozen=True, kw_only=True):
    limit: Limit = 100
    page: str | None = None
    key_id: KeyId | None = None
    created_at_gte: Timestamp | None = None
    created_at_lte: Timestamp | None = None


class VerifyAudit(Struct, frozen=True, kw_only=True):
    head: str | None = None
    """A hash that was stored elsewhere, which must be in the chain."""


@dataclass(frozen=True, slots=True)
class AuditRoutes:
    audit: Audit
    route_options: ClassVar[RouteOptions] = {"role": "operator"}

    @route("GET /v1/mainspring/audit", "List audit entries, newest first")
    async def list(self, call: ApiCall[ListAudit, Empty]) -> Page[AuditEntry]:
        return await self.audit.page(call.tenant, list_query(call.query, label=call.query.key_id))

    @route("GET /v1/mainspring/audit/verify", "Verify that the audit log is complete and unchanged")
    async def verify(self, call: ApiCall[VerifyAudit, Empty]) -> AuditVerification:
        return await self.audit.verify(call.tenant, head=call.query.head)
