"""Models that do as they are told, and a clock that moves only when somebody sleeps."""

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import anyio

from mainspring.capabilities.providers.circuit_breaker import BreakerSettings
from mainspring.capabilities.providers.retry import Timing
from mainspring.capabilities.providers.router import Router, RouterSettings
from mainspring.capabilities.providers.routing_rules import ModelCandidate, Routing, RoutingRule
from mainspring.core.content import TextBlock
from mainspring.core.errors import ProviderFailed, ProviderFailure
from mainspring.core.events import Usage
from mainspring.core.model import Delta, Model, Reply, Request, TextDelta, User

Item = Delta | Reply | ProviderFailed


def says(text: str, *, tokens: int = 10) -> list[Item]:
    reply = Reply(
        content=(TextBlock(text),),
        usage=Usage(input_tokens=tokens, output_tokens=1),
        reason="end_turn",
        model="whatever the provider calls it",
    )
    return [TextDelta(text), reply]


def fails(
    kind: ProviderFailure, *, after: Sequence[Item] = (), retry_after: float | None = None
) -> list[Item]:
    return [*after, ProviderFailed("fake", kind, f"it is {kind}", retry_after_seconds=retry_after)]


class Fake:
    """Plays its turns in order; the last one for ever."""

    def __init__(self, *turns: list[Item]) -> None:
        self.turns = list(turns)
        self.requests: list[Request] = []
        self.at_once = 0
        self.most_at_once = 0
        self.gate: anyio.Event | None = None

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        self.requests.append(request)
        turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.gate is not None:
                await self.gate.wait()
            for item in turn:
                if isinstance(item, ProviderFailed):
                    raise item
                yield item
        finally:
            self.at_once -= 1


@dataclass
class Time:
    now: float = 1000.0
    slept: list[float] = field(default_factory=list[float])

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await anyio.lowlevel.checkpoint()

    def timing(self) -> Timing:
        return Timing(clock=lambda: self.now, sleep=self.sleep, random=random.Random(7))


def fleet(
    models: dict[str, Fake],
    time: Time | None = None,
    settings: RouterSettings | None = None,
    rules: Sequence[RoutingRule] = (),
) -> Router:
    """A router whose role `main` has these models, in this order."""
    main = [ModelCandidate(id=id_, model=model) for id_, model in models.items()]
    return Router(Routing({"main": main}, rules), settings, (time or Time()).timing())


def quick_to_open(failures: int = 1, seconds: float = 30.0) -> RouterSettings:
    return RouterSettings(
        breaker=BreakerSettings(failures=failures, cooldown_seconds=seconds),
    )


def request(text: str = "hello", **changes: object) -> Request:
    fields: dict[str, object] = {
        "model": "unset",
        "system": ("be brief",),
        "tools": (),
        "messages": (User((TextBlock(text),)),),
        "max_tokens": 100,
    }
    return Request(**(fields | changes))  # pyright: ignore[reportArgumentType]  # a test's shorthand


async def ask(model: Model, asked: Request | None = None) -> list[Delta | Reply]:
    with anyio.fail_after(60):
        async with aclosing(model.stream(asked or request())) as items:
            return [item async for item in items]


async def answer(model: Model, asked: Request | None = None) -> Reply:
    last = (await ask(model, asked))[-1]
    assert isinstance(last, Reply)
    return last
