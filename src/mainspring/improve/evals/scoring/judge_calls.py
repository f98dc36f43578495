"""Requests to judges, and the budget that they share with the trials of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from mainspring.core import ids
from mainspring.core.errors import InvalidInput, ProviderFailed
from mainspring.core.events import (
    BudgetReserved,
    BudgetSettled,
    ModelRequestEnded,
    ModelRequestStarted,
    Usage,
)
from mainspring.core.model import Request
from mainspring.harness.budget import Charge
from mainspring.improve.evals.scoring.judges import AskJudge
from mainspring.log.writer import Writer
from mainspring.runtime.model_question import complete, reply_text, text_request
from mainspring.runtime.session_context import Models

PURPOSE = "judge"
"""The purpose of the request in the log."""
_MAX_TOKENS = 2_000  # of a verdict with its reason


@dataclass(slots=True)
class RunBudget:
    """A `Ledger` that prevents requests that could exceed the budget of the run."""

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


def new_request(
    models: Models, model: str, system: str, question: str, *, max_tokens: int, request_id: str
) -> tuple[Request, Charge]:
    """A request outside any conversation, and a reservation of the most that it can cost."""
    facts = models.facts(model)
    tokens = int(len(system + question) / facts.bytes_per_token) + 1
    max_cost = (tokens * facts.price.input + max_tokens * facts.price.output) / 10**6
    request = text_request(model, system, [("user", question)], max_tokens, request_id=request_id)
    return request, Charge(reservation_id=ids.new_id(ids.RESERVATION), cost_usd=max_cost)


def judge_asker(models: Models, budget: RunBudget, writer: Writer | None = None) -> AskJudge:
    """Returns the function that asks a judge. A judge sees no other verdict and nothing of the
    agent's context. With a `writer`, each request and its possible cost are logged first."""

    async def ask(model: str, system: str, question: str) -> tuple[str, Decimal]:
        name, request_id = models.resolve(model), ids.new_id(ids.REQUEST)
        request, charge = new_request(
            models, name, system, question, max_tokens=_MAX_TOKENS, request_id=request_id
        )
        refusal = await budget.reserve(charge)
        if refusal is not None:
            raise InvalidInput(refusal)
        start_id = "" if writer is None else await _record_start(writer, request, charge)
        reply, problem = None, ""
        try:
            reply = await complete(models, request)
        except ProviderFailed as error:
            problem = str(error)
        cost = Decimal(0) if reply is None else models.cost(reply.model, reply.usage)
        await budget.settle(charge.reservation_id, cost)
        if writer is not None:
            ended = ModelRequestEnded(
                model_request_start_id=start_id,
                model_usage=Usage() if reply is None else reply.usage,
                is_error=reply is None,
                purpose=PURPOSE,
                model=name if reply is None else reply.model,
                cost_usd=str(cost),
            )
            settled = BudgetSettled(reservation_id=charge.reservation_id, cost_usd=str(cost))
            await writer.append(ended, settled)
        if reply is None:
            raise InvalidInput(f"the judge {name} did not answer: {problem}")
        return reply_text(reply), cost

    return ask


async def _record_start(writer: Writer, request: Request, charge: Charge) -> str:
    """Record the request and return its event's id. A request that a crash interrupts keeps its
    reservation, since it may have been paid."""
    started = ModelRequestStarted(
        model=request.model, purpose=PURPOSE, request_id=request.request_id
    )
    reserved = BudgetReserved(reservation_id=charge.reservation_id, cost_usd=str(charge.cost_usd))
    start, _ = await writer.append(started, reserved)
    return start.id
