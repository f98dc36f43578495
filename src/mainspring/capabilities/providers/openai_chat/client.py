"""A model behind OpenAI's chat completions, or any server that speaks them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from mainspring.capabilities.providers.conversation import converse
from mainspring.capabilities.providers.http import Call, Endpoint, Http
from mainspring.capabilities.providers.openai_chat.request import encode
from mainspring.capabilities.providers.openai_chat.stream import ChatParser
from mainspring.capabilities.providers.quirks import Quirks
from mainspring.core.model import Delta, Reply, Request


class ChatModel:
    """OpenAI, Gemini's compatible endpoint, Ollama, vLLM, llama.cpp, LM Studio, OpenRouter..."""

    def __init__(
        self,
        http: Http,
        *,
        url: str,
        provider: str,
        key: str = "",
        quirks: Quirks | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`url` is what stands before `/chat/completions`; local servers need no key."""
        self._http = http
        self._quirks = quirks or Quirks()
        self._endpoint = Endpoint.with_bearer(
            provider, f"{url.rstrip('/')}/chat/completions", key=key, headers=headers or {}
        )

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        provider = self._endpoint.provider
        call = Call(
            endpoint=self._endpoint,
            body=encode(request, self._quirks, provider),
            request_id=request.request_id,
            stream=request.stream,
        )
        return converse(self._http, call, ChatParser(request, provider, self._endpoint.secret))
