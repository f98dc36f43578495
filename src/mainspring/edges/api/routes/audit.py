"""`/v1/mainspring/audit`: the audit log of a tenant, and its verification."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from mainspring.core.ids import KeyId
from mainspring.edges.api.route import ApiCall, Empty, Timestamp, route
from mainspring.service.access.audit import Audit, AuditEntry, AuditVerification
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery


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

    @route("GET /v1/mainspring/audit", "List audit entries, newest first", role="operator")
    async def list(self, call: ApiCall[ListAudit, Empty]) -> Page[AuditEntry]:
        query = call.query
        listing = ListQuery(
            limit=query.limit,
            page=query.page,
            label=query.key_id,
            created_from=query.created_at_gte,
            created_upto=query.created_at_lte,
        )
        return await self.audit.page(call.tenant, listing)

    @route(
        "GET /v1/mainspring/audit/verify",
        "Verify that the audit log is complete and unchanged",
        role="operator",
    )
    async def verify(self, call: ApiCall[VerifyAudit, Empty]) -> AuditVerification:
        return await self.audit.verify(call.tenant, head=call.query.head)
