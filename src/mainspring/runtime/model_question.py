"""One short question to a model, outside any conversation: for the classifier, prompt hooks and
recall."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from decimal import Decimal
from typing import TypeAlias

from mainspring.core import ids
from mainspring.core.content import TextBlock
from mainspring.core.errors import ProviderFailed
from mainspring.core.events import (
    BudgetReserved,
    BudgetSettled,
    KnownPayload,
    ModelRequestEnded,
    Usage,
)
from mainspring.core.model import Assistant, Reply, Request, User
from mainspring.harness.state.thread import JUDGEMENT, SEARCH
from mainspring.runtime.session_context import Models

AskModel: TypeAlias = Callable[[str, str], Awaitable[tuple[str, tuple[KnownPayload, ...]]]]
"""Takes a system prompt and a question; returns the answer, and its cost as events for the log."""

_MAX_TOKENS = 1_000  # of an answer in one paragraph
_SEARCH_USD = Decimal("0.01")
"""The price of one search in the Messages API, in addition to tokens."""


def make_ask_model(models: Models, model: str, *, purpose: str = JUDGEMENT) -> AskModel:
    async def ask(system: str, question: str) -> tuple[str, tuple[KnownPayload, ...]]:
        request = text_request(model, system, [("user", question)], _MAX_TOKENS)
        try:
            reply, facts = await read_reply(models, request, purpose=purpose)
        except ProviderFailed as error:
            return f"the model did not answer: {error}", ()  # counts as a refusal
        return reply_text(reply), facts

    return ask


async def read_reply(
    models: Models, request: Request, *, purpose: str = JUDGEMENT
) -> tuple[Reply, tuple[KnownPayload, ...]]:
    """The reply to a request, and its cost.

    Raises: ProviderFailed.
    """
    reply = await complete(models, request)
    return reply, _cost_facts(models, reply, purpose)


async def complete(models: Models, request: Request) -> Reply:
    """The reply to a request, whose cost the caller records.

    Raises: ProviderFailed.
    """
    async with aclosing(models.open(request.model).stream(request)) as deltas:
        async for delta in deltas:
            if isinstance(delta, Reply):
                return delta
    raise ProviderFailed(request.model, "malformed", "the stream ended without a reply")


async def read_text(
    models: Models, model: str, system: str, messages: Sequence[tuple[str, str]], max_tokens: int
) -> tuple[Reply, tuple[KnownPayload, ...]]:
    """The reply to a conversation of texts, each with its role, and its cost.

    Raises: ProviderFailed.
    """
    return await read_reply(models, text_request(model, system, messages, max_tokens))


def text_request(
    model: str,
    system: str,
    messages: Sequence[tuple[str, str]],
    max_tokens: int,
    *,
    request_id: str = "",
) -> Request:
    """A request without tools: a conversation of texts, each with its role."""
    return Request(
        model=model,
        system=(system,) if system else (),
        tools=(),
        messages=tuple(
            User((TextBlock(text),)) if role == "user" else Assistant((TextBlock(text),))
            for role, text in messages
        ),
        max_tokens=max_tokens,
        request_id=request_id,
    )


def reply_text(reply: Reply) -> str:
    return "".join(part.text for part in reply.content if isinstance(part, TextBlock))


def _cost_facts(models: Models, reply: Reply, purpose: str) -> tuple[KnownPayload, ...]:
    cost = models.cost(reply.model, reply.usage)
    request_end = ModelRequestEnded(
        model_request_start_id="",
        model_usage=reply.usage,
        model=reply.model,
        purpose=purpose,
        stop_reason=reply.reason,
        cost_usd=str(cost),
    )
    return settled_facts(request_end)


def settled_facts(ended: ModelRequestEnded) -> tuple[KnownPayload, ...]:
    """The events of a request's cost: reserved, ended, settled."""
    cost, reservation = ended.cost_usd or "0", ids.new_id(ids.RESERVATION)
    return (
        BudgetReserved(reservation_id=reservation, cost_usd=cost),
        ended,
        BudgetSettled(reservation_id=reservation, cost_usd=cost),
    )


def report_searches(
    models: Models, record: Callable[[KnownPayload], None]
) -> Callable[[str, Usage, int], None]:
    """Records the cost of a model API's web search: tokens, and a price for each search."""

    def report(model: str, usage: Usage, searches: int) -> None:
        request_end = ModelRequestEnded(
            model_request_start_id="",
            model_usage=usage,
            model=model,
            purpose=SEARCH,
            cost_usd=str(models.cost(model, usage) + searches * _SEARCH_USD),
        )
        for fact in settled_facts(request_end):
            record(fact)

    return report
