"""The budget of a run: all its sessions reserve from it. So does a session that starts runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal

from mainspring.core.envelope import event_types
from mainspring.core.errors import SessionNotFound
from mainspring.core.events import ModelRequestEnded
from mainspring.harness.budget import Budget, Charge, Ledger
from mainspring.log.session_log import SessionLog
from mainspring.runtime.workflows.run_state import require_run


@dataclass(slots=True, kw_only=True)
class LimitLedger:
    """A `Ledger` with a limit of its own, above that of its payers."""

    limit_usd: Decimal | None
    spent_usd: Decimal = Decimal(0)
    payers: Ledger | None = None
    _reserved: dict[str, Decimal] = field(default_factory=dict[str, Decimal])

    owner: str = "workflow run"
    """Whose budget it is, for messages."""

    @property
    def _committed_usd(self) -> Decimal:
        return self.spent_usd + sum(self._reserved.values(), Decimal(0))

    def take_half(self) -> Decimal:
        """Take half of what is left away, for somebody else to spend."""
        left = max(Decimal(0), (self.limit_usd or Decimal(0)) - self._committed_usd)
        self.limit_usd = (self.limit_usd or Decimal(0)) - left / 2
        return left / 2

    async def reserve(self, charge: Charge) -> str | None:
        limit = self.limit_usd
        if limit is not None and self._committed_usd + charge.cost_usd > limit:
            return f"the budget of the {self.owner}, {limit} US dollars, is reached"
        self._reserved[charge.reservation_id] = charge.cost_usd
        refusal = None if self.payers is None else await self.payers.reserve(charge)
        if refusal is not None:
            del self._reserved[charge.reservation_id]
        return refusal

    async def settle(self, reservation_id: str, cost_usd: Decimal) -> None:
        if self._reserved.pop(reservation_id, None) is not None:
            self.spent_usd += cost_usd
        if self.payers is not None:
            await self.payers.settle(reservation_id, cost_usd)


async def run_budget(
    log: SessionLog, run_id: str, limit_usd: Decimal | None, budget: Budget
) -> Budget:
    """The budget of a run, of which it has used a part, within the one of its runner."""
    ledger = LimitLedger(limit_usd=limit_usd, payers=budget.ledger)
    if limit_usd is not None:
        ledger.spent_usd = await _spent(log, run_id)
    return replace(budget, ledger=ledger)


async def _spent(log: SessionLog, run_id: str) -> Decimal:
    """What a run has cost, with the requests of nodes that have not ended."""
    state = require_run(await log.read(run_id), run_id)
    spent = state.cost_usd
    for node in state.nodes.values():
        if node.is_ended or node.session_id is None:
            continue
        with suppress(SessionNotFound):
            spent += await requests_usd(log, node.session_id)
    return spent


async def requests_usd(log: SessionLog, session_id: str) -> Decimal:
    """What the model requests of a session have cost. Raises: SessionNotFound."""
    events = await log.read(session_id, types=event_types(ModelRequestEnded))
    requests = [event.payload for event in events if isinstance(event.payload, ModelRequestEnded)]
    return sum((Decimal(item.cost_usd or 0) for item in requests), Decimal(0))
