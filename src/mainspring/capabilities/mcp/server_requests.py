"""Requests of a server to the client other than questions to a person: the location of the
workspace, and, if allowed, a reply of the session's model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.capabilities.mcp.protocol import messages
from mainspring.capabilities.mcp.protocol.foreign_text import clean_text
from mainspring.capabilities.mcp.protocol.messages import Content, Text, decode_result
from mainspring.core.content import TextBlock
from mainspring.core.errors import McpFailed, ProviderFailed
from mainspring.core.events import KnownPayload
from mainspring.core.model import Reply

_MAX_TOKENS = 4_000  # of a reply that a server asks the model for
_MAX_MESSAGES = 50  # of such a request
_MAX_CHARS = 100_000  # of such a request, about 25,000 tokens
_MAX_REQUESTS = 50
"""The limit for all servers in one run."""


@dataclass(frozen=True, slots=True)
class RequestHandler:
    capability: str
    """The capability that the client declares for it."""
    answer: Callable[[bytes], Awaitable[Mapping[str, object]]]
    """Answers the params. Raises: McpFailed: the request is refused."""


RequestHandlers: TypeAlias = Mapping[str, RequestHandler]
"""Handlers by the name of the method."""


Role: TypeAlias = Literal["user", "assistant"]


Messages: TypeAlias = Sequence[tuple[Role, str]]
Sample: TypeAlias = Callable[[str, Messages, int], Awaitable[Reply]]
"""Asks the session's model, at the session's cost: a system prompt, a conversation and a token
limit. Raises: McpFailed."""
ReadReply: TypeAlias = Callable[
    [str, Messages, int], Awaitable[tuple[Reply, Iterable[KnownPayload]]]
]
"""The same, with the cost of the reply. Raises: ProviderFailed."""


def make_sample(read_reply: ReadReply, record: Callable[[Iterable[KnownPayload]], None]) -> Sample:
    """`record` gets the cost of each reply."""
    count = 0

    async def sample(system: str, messages: Messages, max_tokens: int) -> Reply:
        nonlocal count
        count += 1
        if count > _MAX_REQUESTS:
            raise McpFailed(
                f"servers have made {_MAX_REQUESTS} model requests, the most a session allows"
            )
        try:
            reply, facts = await read_reply(system, messages, max_tokens)
        except ProviderFailed as error:
            raise McpFailed(f"the model did not answer: {error}") from error
        record(facts)
        return reply

    return sample


def request_handlers(roots: Sequence[str], sample: Sample | None) -> RequestHandlers:
    """Handlers for a server that may know `roots` and, with `sample`, use the model."""
    return {
        **(_roots_handler(roots) if roots else {}),
        **({} if sample is None else _sampling_handler(sample)),
    }


def _roots_handler(uris: Sequence[str]) -> RequestHandlers:
    async def answer(_: bytes) -> Mapping[str, object]:
        return {"roots": [{"uri": uri, "name": "workspace"} for uri in uris]}

    return {"roots/list": RequestHandler("roots", answer)}


class _SamplingMessage(Struct, frozen=True, kw_only=True):
    role: Role
    content: Content | list[Content]


class _SamplingParams(Struct, frozen=True, kw_only=True, rename="camel"):
    messages: list[_SamplingMessage]
    system_prompt: str = ""
    max_tokens: int = _MAX_TOKENS
    tools: list[object] = []


def _sampling_handler(sample: Sample) -> RequestHandlers:
    async def answer(params: bytes) -> Mapping[str, object]:
        reply = await sample(*_sampling_request(params))
        text = "".join(part.text for part in reply.content if isinstance(part, TextBlock))
        return {
            "role": "assistant",
            "content": {"type": "text", "text": text},
            "model": reply.model,
            "stopReason": "maxTokens" if reply.reason == "max_tokens" else "endTurn",
        }

    return {"sampling/createMessage": RequestHandler("sampling", answer)}


def _sampling_request(params: bytes) -> tuple[str, Messages, int]:
    request = decode_result(params, _SamplingParams, "sampling/createMessage")
    if request.tools:
        raise _refusal("tools are not offered to servers")
    if not 0 < len(request.messages) <= _MAX_MESSAGES:
        raise _refusal(f"from 1 to {_MAX_MESSAGES} messages, please")
    messages_: Messages = [(item.role, _text(item)) for item in request.messages]
    system = clean_text(request.system_prompt)
    if len(system) + sum(len(text) for _, text in messages_) > _MAX_CHARS:
        raise _refusal(f"more than {_MAX_CHARS:,} characters")
    if messages_[-1][0] != "user":
        raise _refusal("the last message has to be the user's")
    return system, messages_, min(max(request.max_tokens, 1), _MAX_TOKENS)


def _text(message: _SamplingMessage) -> str:
    parts = message.content if isinstance(message.content, list) else [message.content]
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) != len(parts):
        raise _refusal("only text is understood")
    return clean_text("\n".join(texts))


def _refusal(why: str) -> McpFailed:
    return McpFailed(why, code=messages.INVALID_PARAMS)
