"""`/v1/mainspring/audit`: what was done in a tenant, and whether the record of it is whole."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from mainspring.core.ids import KeyId
from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.service.access.audit import Audit, AuditEntry, AuditVerification
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery

Timestamp = Annotated[datetime, Meta(tz=True)]


class ListAudit(Struct, frozen=True, kw_only=True):
    limit: Limit = 100
    page: str | None = None
    key_id: KeyId | None = None
    created_at_gte: Timestamp | None = None
    created_at_lte: Timestamp | None = None


class VerifyAudit(Struct, frozen=True, kw_only=True):
    head: str | None = None
    """A hash that was kept elsewhere: it must be in the chain."""


@dataclass(frozen=True, slots=True)
class AuditRoutes:
    audit: Audit

    def routes(self) -> tuple[Route, ...]:
        path = "/v1/mainspring/audit"
        return (
            Route(
                method="GET",
                path=path,
                handle=self.list,
                summary="List audit entries, newest first",
                query=ListAudit,
                response_type=Page[AuditEntry],
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{path}/verify",
                handle=self.verify,
                summary="Verify that the audit log is complete and unchanged",
                query=VerifyAudit,
                response_type=AuditVerification,
                role="operator",
                is_extension=True,
            ),
        )

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

    async def verify(self, call: ApiCall[VerifyAudit, Empty]) -> AuditVerification:
        return await self.audit.verify(call.tenant, head=call.query.head)
