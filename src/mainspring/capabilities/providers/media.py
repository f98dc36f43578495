"""Content blocks as far as all wire formats treat them alike: what is text, what is media."""

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
Resolved: TypeAlias = Base64Source | UrlSource | PlainTextSource


def resolved(source: Resolved | FileSource | BlobSource) -> Resolved:
    """A source that a provider can read.

    Raises:
        InvalidInput: it names bytes that only we have; whoever built the request must load them.
    """
    match source:
        case BlobSource(hash=digest):
            raise InvalidInput(f"blob {digest} must be loaded before it is sent to a model")
        case FileSource(file_id=file_id):
            raise InvalidInput(f"file {file_id} must be loaded before it is sent to a model")
        case Base64Source(media_type=kind, data=data) if kind.startswith("text/"):
            return PlainTextSource(data=_decoded(data))
        case _:
            return source


def _decoded(data: str) -> str:
    try:
        return b64decode(data, validate=True).decode(errors="replace")
    except binascii.Error as error:
        raise InvalidInput(f"a document that is not base64: {error}") from error


def reading(block: Block, quirks: Quirks) -> str | Media:
    """What a model gets of a block: words, or media that it can see."""
    match block:
        case TextBlock(text=text) | BlobBlock(preview=text):
            return text
        case RedactedBlock():
            return REDACTED
        case SearchResultBlock(title=title, source=source, content=content):
            return "\n".join([f"{title} ({source})", *(part.text for part in content)])
        case ImageBlock(source=source):
            resolved(source)
            return block if quirks.supports_images else "[an image, which this model cannot see]"
        case DocumentBlock(source=source):
            return _document(block, resolved(source), quirks)


def _document(block: DocumentBlock, source: Resolved, quirks: Quirks) -> str | Media:
    title = block.title or "untitled"
    if isinstance(source, PlainTextSource):
        about = f" ({block.context})" if block.context else ""
        return f"Document: {title}{about}\n\n{source.data}"
    return block if quirks.supports_documents else f"[document {title}, which it cannot read]"


def data_url(source: Resolved) -> str:
    match source:
        case Base64Source(media_type=kind, data=data):
            return f"data:{kind};base64,{data}"
        case UrlSource(url=url):
            return url
        case PlainTextSource():
            raise InvalidInput("text is sent as text, not as a URL")
