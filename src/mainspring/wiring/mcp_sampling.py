"""Replies of a session's model to its MCP servers, at the session's cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mainspring.capabilities.mcp.server_requests import Sample, SamplingReply, SamplingRequest
from mainspring.core.errors import McpFailed, ProviderFailed
from mainspring.core.events import KnownPayload
from mainspring.runtime.model_question import read_text, reply_text
from mainspring.runtime.session_context import Models

_MAX_REQUESTS = 50
"""Of all servers, in one run."""


def make_sample(
    models: Models, model: str, record: Callable[[Iterable[KnownPayload]], None]
) -> Sample:
    """`record` gets what each reply cost."""
    count = 0

    async def sample(request: SamplingRequest) -> SamplingReply:
        nonlocal count
        count += 1
        if count > _MAX_REQUESTS:
            raise McpFailed(f"servers have asked the model {_MAX_REQUESTS} times")
        messages = request.messages
        try:
            reply, facts = await read_text(
                models, model, request.system, messages, request.max_tokens
            )
        except ProviderFailed as error:
            raise McpFailed(f"the model did not answer: {error}") from error
        record(facts)
        is_cut = reply.reason == "max_tokens"
        return SamplingReply(text=reply_text(reply), model=reply.model, is_cut=is_cut)

    return sample
