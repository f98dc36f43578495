"""The cost of a tenant's sessions, and what is left of the budgets of a session."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from mainspring.core.errors import SessionNotFound
from mainspring.core.events import Usage
from mainspring.core.ids import AgentId
from mainspring.harness.budget import Payer
from mainspring.runtime.session.spending import GroupBy, ModelCharge, charges, group_charges, total
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_view import LoadedSession
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.metadata import copy_fields
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery

Moment = Annotated[datetime, Meta(tz=True)]
BudgetOwner: TypeAlias = Literal["agent", "key", "tenant"]
_PAYERS: tuple[tuple[BudgetOwner, Payer], ...] = (
    ("agent", "agent"),
    ("key", "user"),
    ("tenant", "tenant"),
)
_CENT = Decimal("0.01")  # the precision of amounts in reports


class CostReportParams(Struct, frozen=True, kw_only=True):
    by: GroupBy = "session"
    agent_id: AgentId | None = None
    created_at_gte: Moment | None = None
    """Only sessions created at this time or later."""
    created_at_lte: Moment | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    """The maximum number of sessions, the newest first; each log is read."""
    page: str | None = None


class BillView(Struct, frozen=True, kw_only=True):
    key: str
    """The agent's name, the session's id, the model or the day (UTC)."""
    calls: int
    failed: int
    usage: Usage
    cost_usd: Decimal


class CostReport(Struct, frozen=True, kw_only=True):
    """The costs of the sessions of one page; to combine pages, add up entries with the same key."""

    by: GroupBy
    data: list[BillView]
    total: BillView
    sessions: int
    next_page: str | None
    type: Literal["cost_report"] = "cost_report"


class Allowance(Struct, frozen=True, kw_only=True):
    limit_usd: Decimal | None
    """`null`: no limit."""
    spent_usd: Decimal
    reserved_usd: Decimal
    """Reserved for calls in progress."""
    left_usd: Decimal | None


class DailyAllowance(Struct, frozen=True, kw_only=True):
    of: BudgetOwner
    id: str
    """The id of the key or tenant; the agent's name."""
    limit_usd: Decimal | None
    committed_usd: Decimal
    """Spent and reserved since midnight UTC."""
    left_usd: Decimal | None


class ThreadCost(Struct, frozen=True, kw_only=True):
    thread_id: str
    agent_name: str | None
    cost_usd: Decimal


class SessionBudget(Struct, frozen=True, kw_only=True):
    session_id: str
    session: Allowance
    """The budget of all its threads together."""
    threads: list[ThreadCost]
    today: list[DailyAllowance]
    """The daily budgets that pay for the session."""
    type: Literal["session_budget"] = "session_budget"


class Costs:
    def __init__(self, sessions: Sessions, ledger: DailyBudgetLedger) -> None:
        self._sessions = sessions
        self._ledger = ledger

    async def report(self, principal: Principal, params: CostReportParams) -> CostReport:
        """Raises: InvalidInput: a cursor of another list."""
        page = await self._page(principal, params)
        costs = [charge for record in page.data for charge in await self._charges(record.id)]
        bills = group_charges(costs, params.by)
        return CostReport(
            by=params.by,
            data=[copy_fields(BillView, bill) for bill in bills],
            total=copy_fields(BillView, total(bills)),
            sessions=len(page.data),
            next_page=page.next_page,
        )

    async def _page(self, principal: Principal, params: CostReportParams) -> Page[SessionRecord]:
        if principal.agent_id is not None and params.agent_id not in (None, principal.agent_id):
            return Page(data=())
        return await self._sessions.repository.page(
            principal.tenant,
            ListQuery(
                limit=params.limit,
                page=params.page,
                label=params.agent_id if principal.agent_id is None else principal.agent_id,
                include_archived=True,
                created_from=params.created_at_gte,
                created_upto=params.created_at_lte,
            ),
        )

    async def budget(self, principal: Principal, session_id: str) -> SessionBudget:
        """Raises: NotFound."""
        session = await self._sessions.find(principal, session_id)
        return SessionBudget(
            session_id=session_id,
            session=_allowance(session),
            threads=[
                copy_fields(ThreadCost, thread, thread_id=thread.id)
                for thread in session.projection.threads.values()
            ],
            today=await self._today(principal, session),
        )

    async def _charges(self, session_id: str) -> list[ModelCharge]:
        log = self._sessions.log
        try:
            return await charges(log, await log.session(session_id))
        except SessionNotFound:  # deleted since the page was read
            return []

    async def _today(self, principal: Principal, session: LoadedSession) -> list[DailyAllowance]:
        """The daily budgets; a key of limited scope sees only that of the agent."""
        record = session.record
        is_scoped = principal.agent_id is not None or principal.environment_id is not None
        names = {
            "agent": record.agent.name,
            "user": record.created_by.key_id,
            "tenant": principal.tenant,
        }
        return [
            await self._day(principal.tenant, whose, payer, names[payer])
            for whose, payer in _PAYERS
            if whose == "agent" or not is_scoped
        ]

    async def _day(
        self, tenant: str, owner: BudgetOwner, payer: Payer, name: str
    ) -> DailyAllowance:
        limit = await self._ledger.limit_usd(tenant, payer, name)
        spent_usd = await self._ledger.spent_usd(tenant, payer, name)
        return DailyAllowance(
            of=owner,
            id=name,
            limit_usd=limit,
            committed_usd=spent_usd,
            left_usd=_remaining(limit, spent_usd),
        )


def _allowance(session: LoadedSession) -> Allowance:
    budget, spent = session.record.budget, session.projection.spent
    limit = None if budget is None else int(budget.max_list_cost.amount) * _CENT
    return Allowance(
        limit_usd=limit,
        spent_usd=spent.cost_usd,
        reserved_usd=spent.reserved_usd,
        left_usd=_remaining(limit, spent.committed_usd),
    )


def _remaining(limit: Decimal | None, used: Decimal) -> Decimal | None:
    return None if limit is None else max(Decimal(0), limit - used)
