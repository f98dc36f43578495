"""One request and its response: the common part of all adapters, between encoder and parser."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from mainspring.capabilities.providers.http_call import (
    Endpoint,
    HttpCall,
    ResponseStarted,
    WholeResponse,
)
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.provider_errors import excerpt
from mainspring.capabilities.providers.token_estimate import with_thinking
from mainspring.core.errors import ProviderFailed
from mainspring.core.model import Delta, Reply, Stalled


class ReplyParser(Protocol):
    """Parses one response in one wire format."""

    @property
    def has_begun(self) -> bool:
        """Whether anything that the format defines has been received."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the provider has sent the stop reason; only the usage may still be missing."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing more will follow."""
        ...

    def feed(self, data: bytes) -> Sequence[Delta]: ...

    def take(self, body: bytes) -> None:
        """Parse a whole response at once, instead of `feed`."""
        ...

    def reply(self, provider_request_id: str | None) -> Reply: ...


async def stream_reply(
    http_client: HttpClient, http_call: HttpCall, reply_parser: ReplyParser
) -> AsyncGenerator[Delta | Reply, None]:
    """Yield deltas as they arrive, then the reply.

    If the connection fails after the stop reason was received, the reply is still complete.
    """
    request_id: str | None = None
    try:
        async with http_client.exchange(http_call) as exchange:
            while not reply_parser.is_over and (part := await exchange.read()) is not None:
                if isinstance(part, ResponseStarted):
                    request_id = part.provider_request_id
                    continue
                for delta in _deltas(part, reply_parser, http_call.endpoint):
                    yield delta
            exchange.is_answered = reply_parser.is_over
    except ProviderFailed as failure:
        if failure.kind not in ("connection", "stalled") or not reply_parser.is_complete:
            raise
    if not reply_parser.is_complete:
        raise _truncated_reply(http_call, reply_parser)
    reply = reply_parser.reply(request_id)
    yield replace(reply, usage=with_thinking(reply.usage, reply.content))


def _deltas(
    part: list[bytes] | Stalled | WholeResponse, reply_parser: ReplyParser, endpoint: Endpoint
) -> Iterator[Delta]:
    try:
        match part:
            case list():
                for data in part:
                    yield from reply_parser.feed(data)
            case Stalled():
                yield part
            case WholeResponse(body=body):
                reply_parser.take(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        told = excerpt(str(error), secret=endpoint.secret)
        what = f"the answer is not what its API promises: {told}"
        raise ProviderFailed(endpoint.provider, "malformed", what) from error


def _truncated_reply(http_call: HttpCall, reply_parser: ReplyParser) -> ProviderFailed:
    if reply_parser.has_begun:
        what = "the stream ended before the reply did"
        return ProviderFailed(http_call.endpoint.provider, "connection", what)
    return ProviderFailed(http_call.endpoint.provider, "malformed", "the answer holds no reply")
