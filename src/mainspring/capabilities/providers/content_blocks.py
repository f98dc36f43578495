"""Handling of content blocks that all wire formats share: text, media, and the provider that signed
a thinking block."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TypeAlias

from mainspring.capabilities.providers.quirks import Quirks
from mainspring.core.content import (
    Base64Source,
    BlobBlock,
    BlobSource,
    Block,
    DocumentBlock,
    FileSource,
    ImageBlock,
    PlainTextSource,
    RedactedBlock,
    SearchResultBlock,
    TextBlock,
    UrlSource,
)
from mainspring.core.errors import InvalidInput

REDACTED = "[redacted]"

Media: TypeAlias = ImageBlock | DocumentBlock
ResolvedSource: TypeAlias = Base64Source | UrlSource | PlainTextSource


def resolve_source(source: ResolvedSource | FileSource | BlobSource) -> ResolvedSource:
    """A source that a provider can read.

    Raises:
        InvalidInput: it refers to bytes that only we have; the caller must load them.
    """
    match source:
        case BlobSource(hash=digest):
            raise InvalidInput(f"blob {digest} must be loaded before it is sent to a model")
        case FileSource(file_id=file_id):
            raise InvalidInput(f"file {file_id} must be loaded before it is sent to a model")
        case Base64Source(media_type=kind, data=data) if kind.startswith("text/"):
            return PlainTextSource(data=_decode_text(data))
        case _:
            return source


def _decode_text(data: str) -> str:
    try:
        return b64decode(data, validate=True).decode(errors="replace")
    except binascii.Error as error:
        raise InvalidInput(f"a document that is not base64: {error}") from error


def to_text_or_media(block: Block, quirks: Quirks) -> str | Media:
    """A block as the model gets it: text, or media that it can see."""
    match block:
        case TextBlock(text=text) | BlobBlock(preview=text):
            return text
        case RedactedBlock():
            return REDACTED
        case SearchResultBlock(title=title, source=source, content=content):
            return "\n".join([f"{title} ({source})", *(part.text for part in content)])
        case ImageBlock(source=source):
            resolve_source(source)
            return block if quirks.supports_images else "[an image, which this model cannot see]"
        case DocumentBlock(source=source):
            return _document(block, resolve_source(source), quirks)


def _document(block: DocumentBlock, source: ResolvedSource, quirks: Quirks) -> str | Media:
    title = block.title or "untitled"
    if isinstance(source, PlainTextSource):
        about = f" ({block.context})" if block.context else ""
        return f"Document: {title}{about}\n\n{source.data}"
    return block if quirks.supports_documents else f"[document {title}, which it cannot read]"


def data_url(source: ResolvedSource) -> str:
    match source:
        case Base64Source(media_type=kind, data=data):
            return f"data:{kind};base64,{data}"
        case UrlSource(url=url):
            return url
        case PlainTextSource():
            raise InvalidInput("text is sent as text, not as a URL")


def seal_signature(maker: str, payload: str) -> str:
    return f"{maker}:{payload}"


def unseal_signature(maker: str, signature: str | None) -> str | None:
    """The payload that this maker signed; None if it was another."""
    mark = f"{maker}:"
    if signature is None or not signature.startswith(mark):
        return None
    return signature[len(mark) :]
