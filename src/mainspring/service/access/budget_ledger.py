"""Daily budgets of keys, agents and tenants, over all workers: the harness's ledger on counters.

A call's highest cost is reserved before it and replaced by its actual cost after it. Reservations
that a crash leaves behind count until the day ends (UTC): the cost of that call is not known, and
the session's own log counts it in full as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_CEILING, Decimal

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import NotFound
from mainspring.harness.budget import Budget, Charge, Payer
from mainspring.log.lru_cache import LruCache
from mainspring.log.records import Records
from mainspring.service.access.api_keys import Keys
from mainspring.service.access.tenants import Tenant, Tenants
from mainspring.service.storage.ttl_cache import TtlCache

LIMIT_SECONDS = 5.0
"""How long a changed budget may take to apply."""
KEPT_DAYS = 90  # of daily spending, for reports
_MAX_OPEN = 100_000
"""The limit of calls in progress. Interrupted calls are never settled; they are evicted
eventually."""
_MICRO = Decimal(1_000_000)  # of a unit of money: amounts are stored as integers
_ANY_NAME = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenReservation:
    """A model call in progress."""

    day: date
    charge: Charge
    micros: int
    """The reserved amount; 0 if no payer has a limit."""


class DailyBudgetLedger:
    """One for each process, over the counters of the store. `Charge.user` is the id of a key."""

    def __init__(
        self,
        records: Records,
        *,
        clock: Clock = clocks.now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self._keys = Keys(records, clock=clock)
        self._tenants = Tenants(records, clock=clock)
        self._clock = clock
        self._key_limits = TtlCache(self._key_limit, seconds=LIMIT_SECONDS, monotonic=monotonic)
        self._budgets = TtlCache(self._find_tenant, seconds=LIMIT_SECONDS, monotonic=monotonic)
        self._open: LruCache[str, _OpenReservation] = LruCache(_MAX_OPEN)

    def budget(self, tenant: str, key_id: str) -> Budget:
        """The budget of sessions that this key created: the key, its tenant and the agent pay."""
        return Budget(ledger=self, user=key_id, tenant=tenant)

    async def reserve(self, charge: Charge) -> str | None:
        if charge.reservation_id in self._open:
            return None
        day = self._clock().date()
        tenant = charge.tenant or ""
        limits = [await self.limit_usd(tenant, payer, name) for payer, name in charge.payers()]
        micros = 0  # without a limit, it is counted when it is settled
        if any(limit is not None for limit in limits):
            micros = _micros(charge.cost_usd)
            totals = await self._add(day, charge, micros)
            for (payer, name), limit, total in zip(charge.payers(), limits, totals, strict=True):
                if limit is not None and total > _micros(limit):
                    await self._add(day, charge, -micros)
                    return _refusal(payer, name, limit, total - micros, charge.cost_usd)
        reservation = _OpenReservation(day=day, charge=charge, micros=micros)
        self._open.put(charge.reservation_id, reservation)
        return None

    async def settle(self, reservation_id: str, cost_usd: Decimal) -> None:
        reservation = self._open.pop(reservation_id)
        if reservation is not None and (change := _micros(cost_usd) - reservation.micros):
            await self._add(reservation.day, reservation.charge, change)

    async def spent_usd(self, tenant: str, payer: Payer, name: str) -> Decimal:
        """The amount spent and reserved today."""
        [micros] = await self._records.tally([(_counter(self._today, tenant, payer, name), 0)])
        return micros / _MICRO

    async def limit_usd(self, tenant: str, payer: Payer, name: str) -> Decimal | None:
        """The daily limit; `None` if there is none."""
        if payer == "user":
            return await self._key_limits.get((tenant, name))
        owner = await self._budgets.get(tenant)
        if owner is None or payer == "tenant":
            return None if owner is None else owner.daily_budget_usd
        budgets = owner.agent_daily_budgets_usd
        return budgets.get(name, budgets.get(_ANY_NAME))

    async def delete_expired(self) -> None:
        """Delete counters of past days. Call it once a day; skipping it does no harm."""
        for days in range(KEPT_DAYS, KEPT_DAYS + 7):
            await self._records.forget_tallies(_day_prefix(self._today - timedelta(days=days)))

    @property
    def _today(self) -> date:
        return self._clock().date()

    async def _add(self, day: date, charge: Charge, micros: int) -> list[int]:
        """Add an amount for all payers at once. If two charges together exceed a limit, both may be
        refused, but never both accepted."""
        tenant = charge.tenant or ""
        return await self._records.tally(
            [(_counter(day, tenant, payer, name), micros) for payer, name in charge.payers()]
        )

    async def _key_limit(self, key: tuple[str, str]) -> Decimal | None:
        try:
            return (await self._keys.get(*key)).daily_budget_usd
        except NotFound:  # a subject of an issuer
            return None

    async def _find_tenant(self, tenant: str) -> Tenant | None:
        try:
            return await self._tenants.get(tenant)
        except NotFound:
            return None


def _day_prefix(day: date) -> str:
    return f"spent/{day.isoformat()}/"


def _counter(day: date, tenant: str, payer: Payer, name: str) -> str:
    return f"{_day_prefix(day)}{tenant}/{payer}/{name}"


def _micros(amount: Decimal) -> int:
    return int((amount * _MICRO).to_integral_value(ROUND_CEILING))


def _refusal(payer: Payer, name: str, limit: Decimal, used: int, next_cost: Decimal) -> str:
    who = "key" if payer == "user" else payer
    return (
        f"{who} {name} has used {used / _MICRO:.2f} of today's {limit:.2f} US dollars,"
        f" and the next call may cost {next_cost:.2f}"
    )
