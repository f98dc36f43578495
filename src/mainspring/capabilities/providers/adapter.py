"""One request and its response: the common part of all adapters, between encoder and parser."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.capabilities.providers.http_call import (
    Endpoint,
    HttpCall,
    ResponseStarted,
    WholeResponse,
)
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.provider_errors import excerpt
from mainspring.capabilities.providers.quirks import Quirks
from mainspring.capabilities.providers.token_estimate import with_usage
from mainspring.core.errors import ProviderFailed
from mainspring.core.model import Delta, Reply, Request, Stalled


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

    def reply(self) -> Reply:
        """With `usage_is_estimated` if the provider has not counted the tokens."""
        ...


class WireFormat(Struct, frozen=True, kw_only=True):
    """One provider API: how requests are encoded and responses parsed."""

    provider: str
    """The name of the provider, unless `HttpModel` gets another."""
    path: str
    encode: Callable[[Request, Quirks, str], bytes]
    """From a request, the model's quirks and the provider's name."""
    parser: Callable[[Request, str, str], ReplyParser]
    """From a request, the provider's name and a secret to redact."""
    key_headers: Callable[[str], Mapping[str, str]]


class HttpModel:
    """A model behind an HTTP API."""

    def __init__(
        self,
        http_client: HttpClient,
        wire_format: WireFormat,
        *,
        url: str,
        key: str = "",
        provider: str | None = None,
        quirks: Quirks | None = None,
    ) -> None:
        """`url` is the part before the format's own path; local servers need no key."""
        self._http_client = http_client
        self._wire_format = wire_format
        self._quirks = quirks or Quirks()
        key = key.strip()
        self._endpoint = Endpoint(
            provider=provider or wire_format.provider,
            url=f"{url.rstrip('/')}/{wire_format.path}",
            secret=key,
            headers=wire_format.key_headers(key),
        )

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Yield deltas as they arrive, then the reply.

        If the connection fails after the stop reason was received, the reply is still complete.
        """
        endpoint = self._endpoint
        call = HttpCall(
            endpoint=endpoint,
            body=self._wire_format.encode(request, self._quirks, endpoint.provider),
            request_id=request.request_id,
            stream=request.stream,
        )
        parser = self._wire_format.parser(request, endpoint.provider, endpoint.secret)
        request_id: str | None = None
        try:
            async with self._http_client.exchange(call) as exchange:
                while not parser.is_over and (part := await exchange.read()) is not None:
                    if isinstance(part, ResponseStarted):
                        request_id = part.provider_request_id
                        continue
                    for delta in _deltas(part, parser, endpoint):
                        yield delta
                exchange.is_answered = parser.is_over
        except ProviderFailed as failure:
            if failure.kind not in ("connection", "stalled") or not parser.is_complete:
                raise
        if not parser.is_complete:
            raise _truncated_reply(endpoint, parser)
        yield replace(with_usage(parser.reply(), request), provider_request_id=request_id)


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
        problem = excerpt(str(error), secret=endpoint.secret)
        what = f"the answer is not what its API promises: {problem}"
        raise ProviderFailed(endpoint.provider, "malformed", what) from error


def _truncated_reply(endpoint: Endpoint, reply_parser: ReplyParser) -> ProviderFailed:
    if reply_parser.has_begun:
        what = "the stream ended before the reply did"
        return ProviderFailed(endpoint.provider, "connection", what)
    return ProviderFailed(endpoint.provider, "malformed", "the response contains no reply")
