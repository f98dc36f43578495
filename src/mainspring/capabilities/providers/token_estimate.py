"""Estimates tokens from sizes, on the high side, where a provider does not count them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from mainspring.core.content import (
    Base64Source,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    plain_text,
)
from mainspring.core.events import Usage
from mainspring.core.model import (
    Assistant,
    Message,
    Reply,
    Request,
    Thinking,
    ToolResultBlock,
    ToolUse,
)

_BYTES_A_TOKEN = 3
"""English is closer to 4 and code to 3.3; an estimate that is too high never stops too late."""
_BLOCK_TOKENS = 6  # around a message, a call or a result: an estimate
# Of an image of the largest size that is not scaled down (about 1.15 megapixels).
_IMAGE_TOKENS = 1600
_PDF_BYTES_A_TOKEN = 12  # a guess, since a PDF's size says little about its text


def text_tokens(text: str) -> int:
    return -(-len(text.encode()) // _BYTES_A_TOKEN)


def reply_tokens(content: Sequence[TextBlock | Thinking | ToolUse]) -> int:
    return sum(_spoken_tokens(block) for block in content) + 1


def with_usage(reply: Reply, request: Request) -> Reply:
    """The reply with an estimate of what its provider did not count."""
    usage = reply.usage
    if reply.usage_is_estimated:
        tokens = request_tokens(request)
        usage = Usage(input_tokens=tokens, output_tokens=reply_tokens(reply.content))
    return msgspec.structs.replace(reply, usage=with_thinking(usage, reply.content))


def with_thinking(usage: Usage, content: Sequence[TextBlock | Thinking | ToolUse]) -> Usage:
    """Add thinking tokens that the provider did not count separately: the output minus the
    estimated size of everything else."""
    if usage.thinking_tokens is not UNSET or not any(isinstance(b, Thinking) for b in content):
        return usage
    visible = sum(_spoken_tokens(block) for block in content if not isinstance(block, Thinking))
    return msgspec.structs.replace(usage, thinking_tokens=max(0, usage.output_tokens - visible))


def request_tokens(request: Request) -> int:
    prompt = sum(text_tokens(part) for part in request.system)
    tools = sum(-(-len(msgspec.json.encode(tool)) // _BYTES_A_TOKEN) for tool in request.tools)
    return prompt + tools + sum(message_tokens(message) for message in request.messages)


def message_tokens(message: Message) -> int:
    if isinstance(message, Assistant):
        return _BLOCK_TOKENS + sum(_spoken_tokens(block) for block in message.content)
    return _BLOCK_TOKENS + sum(_block_tokens(block) for block in message.content)


def _spoken_tokens(block: TextBlock | Thinking | ToolUse) -> int:
    match block:
        case TextBlock(text=text):
            return text_tokens(text)
        case Thinking(text=text, signature=signature):
            return max(text_tokens(text), text_tokens(signature or ""))
        case ToolUse():
            size = len(msgspec.json.encode(block.input)) + len(block.name)
            return _BLOCK_TOKENS + -(-size // _BYTES_A_TOKEN)


def _block_tokens(block: Block | ToolResultBlock) -> int:
    match block:
        case ToolResultBlock(content=content):
            return _BLOCK_TOKENS + sum(_block_tokens(part) for part in content)
        case ImageBlock():
            return _IMAGE_TOKENS
        case DocumentBlock(source=Base64Source(data=data)):
            return len(data) // _PDF_BYTES_A_TOKEN + _IMAGE_TOKENS
        case _:
            return _BLOCK_TOKENS + text_tokens(plain_text((block,)))
