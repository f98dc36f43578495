"""One request and its answer: what every adapter does between its encoder and its parser."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

import msgspec

from mainspring.capabilities.providers.http import Call, Http, Opened, Whole
from mainspring.core.errors import ProviderFailed
from mainspring.core.model import Delta, Reply, Stalled


class Parser(Protocol):
    """Reads one answer in one wire format."""

    @property
    def has_begun(self) -> bool:
        """Anything at all has come that the format knows."""
        ...

    @property
    def is_complete(self) -> bool:
        """The provider has said how the reply ended; only its usage may still be missing."""
        ...

    @property
    def is_over(self) -> bool:
        """Nothing more will come."""
        ...

    def feed(self, data: bytes) -> Sequence[Delta]: ...

    def take(self, body: bytes) -> None:
        """The whole answer at once, instead of `feed`."""
        ...

    def reply(self, provider_request_id: str | None) -> Reply: ...


async def converse(http: Http, call: Call, parser: Parser) -> AsyncGenerator[Delta | Reply, None]:
    opened = Opened(None)
    try:
        async with aclosing(http.exchange(call)) as arrivals:
            async for arrival in arrivals:
                if isinstance(arrival, list):
                    for data in arrival:
                        for delta in parser.feed(data):
                            yield delta
                elif isinstance(arrival, Stalled):
                    yield arrival
                elif isinstance(arrival, Whole):
                    parser.take(arrival.body)
                else:
                    opened = arrival
                if parser.is_over:
                    opened.is_answered = True
                    break
    except msgspec.MsgspecError as error:
        what = f"the answer is not what its API promises: {error}"
        raise ProviderFailed(call.endpoint.provider, "malformed", what) from error
    except ProviderFailed as failure:
        if failure.kind not in ("connection", "stalled") or not parser.is_complete:
            raise
    if not parser.is_complete:
        raise _cut_off(call, parser)
    yield parser.reply(opened.provider_request_id)


def _cut_off(call: Call, parser: Parser) -> ProviderFailed:
    if parser.has_begun:
        what = "the stream ended before the reply did"
        return ProviderFailed(call.endpoint.provider, "connection", what)
    return ProviderFailed(call.endpoint.provider, "malformed", "the answer holds no reply")
