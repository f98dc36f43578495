"""What is thrown away once a day: old entries of the audit, and what was spent long ago."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.log.records import Records
from mainspring.service.access.audit import Audit
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.tenants import PLATFORM_TENANT, Tenants
from mainspring.service.storage.repository import ListQuery


async def delete_expired_data(
    records: Records, *, keep_audit: timedelta | None, clock: Clock = clocks.now
) -> None:
    """Any process may do it, at any time, several at once; `None` keeps the audit for ever."""
    await DailyBudgetLedger(records, clock=clock).delete_expired()
    if keep_audit is None:
        return
    audit = Audit(records, clock=clock)
    async with aclosing(_tenants(Tenants(records, clock=clock))) as tenants:
        async for tenant in tenants:
            await audit.prune(tenant, keep=keep_audit)


async def _tenants(tenants: Tenants) -> AsyncGenerator[str, None]:
    yield PLATFORM_TENANT
    page: str | None = None
    while True:
        found = await tenants.page(ListQuery(limit=100, page=page))
        for tenant in found.data:
            yield tenant.id
        if (page := found.next_page) is None:
            return
