"""Requests to judges, and the budget that they share with the trials of a run."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from decimal import Decimal

from mainspring.core import ids
from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput, ProviderFailed
from mainspring.core.model import Reply, Request, User
from mainspring.harness.budget import Charge
from mainspring.improve.evals.judges import AskJudge
from mainspring.runtime.session_context import Models

_MAX_TOKENS = 2_000


@dataclass(slots=True)
class RunBudget:
    """A `Ledger`: no request starts that might exceed what the run may spend."""

    limit_usd: Decimal | None
    spent_usd: Decimal = Decimal(0)
    is_exhausted: bool = False
    _reserved: dict[str, Decimal] = field(default_factory=dict[str, Decimal])

    async def reserve(self, charge: Charge) -> str | None:
        committed = self.spent_usd + sum(self._reserved.values(), Decimal(0))
        if self.limit_usd is not None and committed + charge.cost_usd > self.limit_usd:
            self.is_exhausted = True
            return f"the budget of the eval run, {self.limit_usd} US dollars, is reached"
        self._reserved[charge.reservation_id] = charge.cost_usd
        return None

    async def settle(self, reservation_id: str, cost_usd: Decimal) -> None:
        if self._reserved.pop(reservation_id, None) is not None:
            self.spent_usd += cost_usd


def judge_asker(models: Models, budget: RunBudget) -> AskJudge:
    """Each request stands alone: a judge sees no other verdict, nothing of the agent's context."""

    async def ask(model: str, system: str, question: str) -> tuple[str, Decimal]:
        name = models.resolve(model)
        facts = models.facts(name)
        tokens = int(len(system + question) / facts.bytes_per_token)
        most = (tokens * facts.price.input + _MAX_TOKENS * facts.price.output) / 10**6
        reservation = ids.new_id(ids.RESERVATION)
        refusal = await budget.reserve(Charge(reservation_id=reservation, cost_usd=most))
        if refusal is not None:
            raise InvalidInput(refusal)
        request = Request(
            model=name,
            system=(system,),
            tools=(),
            messages=(User((TextBlock(question),)),),
            max_tokens=_MAX_TOKENS,
            request_id=ids.new_id(ids.REQUEST),
        )
        try:
            reply = await _reply(models, name, request)
        except ProviderFailed as error:
            await budget.settle(reservation, Decimal(0))
            raise InvalidInput(f"the judge {name} did not answer: {error}") from error
        cost = models.cost(reply.model, reply.usage)
        await budget.settle(reservation, cost)
        return "".join(part.text for part in reply.content if isinstance(part, TextBlock)), cost

    return ask


async def _reply(models: Models, name: str, request: Request) -> Reply:
    async with aclosing(models.open(name).stream(request)) as deltas:
        async for delta in deltas:
            if isinstance(delta, Reply):
                return delta
    raise InvalidInput(f"the judge {name} ended without a reply")
