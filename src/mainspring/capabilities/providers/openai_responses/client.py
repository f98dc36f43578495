"""A model behind the OpenAI Responses API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from mainspring.capabilities.providers.conversation import converse
from mainspring.capabilities.providers.http import Call, Endpoint, Http
from mainspring.capabilities.providers.openai_responses.request import encode
from mainspring.capabilities.providers.openai_responses.stream import ResponseParser
from mainspring.capabilities.providers.quirks import Quirks
from mainspring.core.model import Delta, Reply, Request

API = "https://api.openai.com/v1"


class ResponsesModel:
    def __init__(
        self,
        http: Http,
        *,
        key: str,
        url: str = API,
        provider: str = "openai",
        quirks: Quirks | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._http = http
        self._quirks = quirks or Quirks()
        self._endpoint = Endpoint.with_bearer(
            provider, f"{url.rstrip('/')}/responses", key=key, headers=headers or {}
        )

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        provider = self._endpoint.provider
        call = Call(
            endpoint=self._endpoint,
            body=encode(request, self._quirks),
            request_id=request.request_id,
            stream=request.stream,
        )
        return converse(self._http, call, ResponseParser(request, provider, self._endpoint.secret))
