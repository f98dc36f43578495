"""A model request outside the conversation, such as a summary or a grading. It is metered like any
other and can be interrupted.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from decimal import Decimal

from msgspec.structs import replace

from mainspring.core import events, ids
from mainspring.core.content import TextBlock
from mainspring.core.errors import ProviderFailed
from mainspring.core.model import Reply, Request, RetryScheduled
from mainspring.harness.budget import reservation_cost
from mainspring.harness.model_outage import OutageWaits
from mainspring.harness.run_inbox import until_interrupted
from mainspring.harness.stop_reasons import Ended
from mainspring.harness.thread_context import ThreadContext


@dataclass(frozen=True, slots=True)
class SideRequest:
    context: ThreadContext
    request: Request
    _ended: events.ModelRequestEnded
    """The end event of a request that fails."""
    _settled: events.BudgetSettled

    async def answer(self) -> Reply | ProviderFailed | None:
        """The reply or the error; `None` if the user interrupted."""
        answer: Reply | ProviderFailed | None = None
        waits = OutageWaits.begin(self.context)

        async def read_reply() -> None:
            nonlocal answer
            try:
                async with aclosing(self.context.model.stream(self.request)) as deltas:
                    async for delta in deltas:
                        if isinstance(delta, Reply):
                            answer = delta
                        elif (
                            isinstance(delta, RetryScheduled)
                            and (answer := await waits.accept(delta)) is not None
                        ):
                            return
            except ProviderFailed as failed:
                answer = failed

        if await until_interrupted(self.context, read_reply) and answer is None:
            return None
        return answer or ProviderFailed(self.request.model, "malformed", "it ended without a reply")

    async def end(self, answer: Reply | ProviderFailed | None, *, is_error: bool) -> None:
        """Record the end and the cost of the request."""
        ended, settled = self._ended, self._settled
        match answer:
            case Reply():
                cost = str(self.context.cost(answer.usage, answer.model))
                ended = replace(
                    ended,
                    model_usage=answer.usage,
                    is_error=is_error,
                    model=answer.model,
                    stop_reason=answer.reason,
                    cost_usd=cost,
                )
                settled = replace(settled, cost_usd=cost)
            case ProviderFailed():
                ended = replace(ended, stop_reason=answer.kind)
            case None:
                ended = replace(ended, stop_reason="interrupted")
        self.context.note(ended, settled)
        await self.context.budget.settle(settled.reservation_id, Decimal(settled.cost_usd))


async def open_side_request(
    context: ThreadContext, request: Request, *, purpose: str
) -> SideRequest | None:
    """`None` if the budget does not allow it."""
    tokens = int(len(str(request).encode()) / context.facts.bytes_per_token) + 1
    reserved = reservation_cost(
        context.tiers, context.facts, input_tokens=tokens, output_tokens=request.max_tokens
    )
    if isinstance(reserved, Ended):
        return None
    reservation_id = context.new_id(ids.RESERVATION)
    recorded = context.note(
        events.BudgetReserved(
            reservation_id=reservation_id,
            cost_usd=str(reserved),
            input_tokens=tokens,
            output_tokens=request.max_tokens,
        ),
        events.ModelRequestStarted(
            model=request.model,
            purpose=purpose,
            request_id=request.request_id,
            estimated_input_tokens=tokens,
        ),
    )
    ended = events.ModelRequestEnded(
        model_request_start_id=recorded[-1].id,
        model_usage=events.Usage(),
        is_error=True,
        purpose=purpose,
        model=request.model,
        cost_usd="0",
    )
    settled = events.BudgetSettled(reservation_id=reservation_id, cost_usd="0")
    if await context.budget.reserve(reservation_id, reserved) is not None:
        context.note(replace(ended, stop_reason="interrupted"), settled)
        return None
    await context.event_sink.commit()
    return SideRequest(context, request, ended, settled)


def reply_text(answer: Reply | ProviderFailed | None) -> str | None:
    """The text of a reply; `None` if it has none, or the model refused."""
    if not isinstance(answer, Reply) or answer.reason == "refusal":
        return None
    text = "\n".join(part.text for part in answer.content if isinstance(part, TextBlock))
    return text.strip() or None
