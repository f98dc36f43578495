"""Content blocks for the Managed Agents API: blobs are put back inline."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from mainspring.core.content import (
    BlobBlock,
    BlobSource,
    Block,
    DocumentBlock,
    ImageBlock,
    RedactedBlock,
    SearchResultBlock,
    TextBlock,
    plain_text,
)

MAX_INLINE_BYTES = 8 * 1024 * 1024
"""A larger image or document is described, not sent."""

Blobs: TypeAlias = Mapping[str, bytes]
NO_BLOBS: Blobs = MappingProxyType({})
AllowedBlocks: TypeAlias = tuple[type[Block], ...]

MESSAGE_BLOCKS: AllowedBlocks = (TextBlock, RedactedBlock)
"""The blocks that an agent's message may contain."""
USER_BLOCKS: AllowedBlocks = (TextBlock, ImageBlock, DocumentBlock, RedactedBlock)
RESULT_BLOCKS: AllowedBlocks = (TextBlock, ImageBlock, DocumentBlock, SearchResultBlock)
"""The blocks that a tool's result may contain."""


def blob_digests(content: tuple[Block, ...]) -> list[str]:
    """Digests of the blobs that `wire_block` needs."""
    return [
        block.source.hash
        for block in content
        if isinstance(block, ImageBlock | DocumentBlock)
        and isinstance(block.source, BlobSource)
        and block.source.size <= MAX_INLINE_BYTES
    ]


def wire_block(block: Block, allowed: AllowedBlocks, blobs: Blobs) -> object:
    if isinstance(block, BlobBlock):
        stored = {"hash": block.hash, "size": block.size, "media_type": block.media_type}
        return {"type": "text", "text": block.preview, "blob": stored}
    if not isinstance(block, allowed):
        return _text(plain_text((block,)) or "[redacted]")
    if isinstance(block, ImageBlock | DocumentBlock) and isinstance(block.source, BlobSource):
        return _from_blob(block, block.source, blobs)
    return msgspec.to_builtins(block)


def _from_blob(block: ImageBlock | DocumentBlock, stored: BlobSource, blobs: Blobs) -> object:
    content = blobs.get(stored.hash)
    if content is None:
        return _text(f"[{stored.media_type}, {stored.size} bytes, not shown here: {stored.hash}]")
    fields: dict[str, object] = msgspec.to_builtins(block)
    data = base64.b64encode(content).decode()
    fields["source"] = {"type": "base64", "media_type": stored.media_type, "data": data}
    return fields


def _text(text: str) -> object:
    return {"type": "text", "text": text}
