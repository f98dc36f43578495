"""The budget of a run: all its sessions reserve from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from mainspring.harness.budget import Charge


@dataclass(slots=True, kw_only=True)
class RunLedger:
    """A `Ledger` of one run."""

    limit_usd: Decimal | None
    spent_usd: Decimal = Decimal(0)
    _reserved: dict[str, Decimal] = field(default_factory=dict[str, Decimal])

    async def reserve(self, charge: Charge) -> str | None:
        committed = self.spent_usd + sum(self._reserved.values(), Decimal(0))
        if self.limit_usd is not None and committed + charge.cost_usd > self.limit_usd:
            return f"the budget of the workflow run, {self.limit_usd} US dollars, is reached"
        self._reserved[charge.reservation_id] = charge.cost_usd
        return None

    async def settle(self, reservation_id: str, cost_usd: Decimal) -> None:
        if self._reserved.pop(reservation_id, None) is not None:
            self.spent_usd += cost_usd
