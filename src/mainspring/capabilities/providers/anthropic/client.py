"""A model behind the Anthropic Messages API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from mainspring.capabilities.providers.anthropic.request import encode
from mainspring.capabilities.providers.anthropic.stream import MessageParser
from mainspring.capabilities.providers.conversation import converse
from mainspring.capabilities.providers.http import Call, Endpoint, Http
from mainspring.capabilities.providers.quirks import Quirks
from mainspring.core.model import Delta, Reply, Request

API = "https://api.anthropic.com/v1"
VERSION = "2023-06-01"


class AnthropicModel:
    def __init__(
        self,
        http: Http,
        *,
        key: str,
        url: str = API,
        provider: str = "anthropic",
        quirks: Quirks | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._http = http
        self._quirks = quirks or Quirks()
        key = key.strip()
        self._endpoint = Endpoint(
            provider=provider,
            url=f"{url.rstrip('/')}/messages",
            secret=key,
            headers={
                **({"x-api-key": key} if key else {}),
                "anthropic-version": VERSION,
                **(headers or {}),
            },
        )

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        call = Call(
            endpoint=self._endpoint,
            body=encode(request, self._quirks),
            request_id=request.request_id,
            stream=request.stream,
        )
        return converse(
            self._http, call, MessageParser(request, self._endpoint.provider, self._endpoint.secret)
        )
