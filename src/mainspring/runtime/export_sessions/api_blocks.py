"""Content blocks in the form of a model's API, with media from blobs."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mainspring.core import content
from mainspring.core.content import Block, plain_text
from mainspring.core.errors import BlobNotFound
from mainspring.log.session_log import SessionLog


async def media_of(log: SessionLog, blocks: Sequence[Block]) -> dict[str, bytes]:
    """The images and documents in these blocks that are stored as blobs, by hash."""
    media: dict[str, bytes] = {}
    for block in blocks:
        match block:
            case (
                content.ImageBlock(source=content.BlobSource(hash=digest))
                | content.DocumentBlock(source=content.BlobSource(hash=digest))
            ):
                with suppress(BlobNotFound):  # a description of it is shown instead
                    media[digest] = await log.blob(digest)
            case _:
                pass
    return media


def api_block(block: Block, media: Mapping[str, bytes]) -> dict[str, object]:
    """One block in the form of the Messages API; a block without such a form becomes text."""
    match block:
        case content.ImageBlock(source=source):
            shape = _source(source, media)
            return {"type": "image", "source": shape} if shape else _text(describe_block(block))
        case content.DocumentBlock(source=source):
            shape = _source(source, media)
            return {"type": "document", "source": shape} if shape else _text(describe_block(block))
        case _:
            return _text(describe_block(block))


def describe_block(block: Block) -> str:
    """A block as text: its own text, or a description of its kind."""
    match block:
        case content.ImageBlock(source=source):
            return f"[image: {_source_text(source)}]"
        case content.DocumentBlock(source=content.PlainTextSource(data=data)):
            return data
        case content.DocumentBlock(source=source, title=title):
            return f"[document {title or ''}: {_source_text(source)}]".replace(" :", ":")
        case content.RedactedBlock():
            return "[redacted]"
        case _:
            return plain_text((block,))


def image_of(block: Block, media: Mapping[str, bytes]) -> tuple[str, str] | None:
    """The media type and base64 of an image, if its bytes are available."""
    if not isinstance(block, content.ImageBlock):
        return None
    match block.source:
        case content.Base64Source(media_type=kind, data=data):
            return kind, data
        case content.BlobSource(media_type=kind, hash=digest) if digest in media:
            return kind, base64.b64encode(media[digest]).decode()
        case _:
            return None


def _source(
    source: content.ImageSource | content.DocumentSource, media: Mapping[str, bytes]
) -> dict[str, object] | None:
    match source:
        case content.Base64Source(media_type=kind, data=data):
            return {"type": "base64", "media_type": kind, "data": data}
        case content.PlainTextSource(data=data, media_type=kind):
            return {"type": "text", "media_type": kind, "data": data}
        case content.UrlSource(url=url):
            return {"type": "url", "url": url}
        case content.BlobSource(media_type=kind, hash=digest) if digest in media:
            data = base64.b64encode(media[digest]).decode()
            return {"type": "base64", "media_type": kind, "data": data}
        case content.BlobSource() | content.FileSource():
            return None


def _source_text(source: content.ImageSource | content.DocumentSource) -> str:
    match source:
        case content.BlobSource(media_type=kind, size=size):
            return f"{kind}, {size} bytes"
        case content.Base64Source(media_type=kind):
            return kind
        case content.FileSource(file_id=file_id):
            return f"file {file_id}"
        case content.UrlSource(url=url):
            return url
        case content.PlainTextSource(media_type=kind):
            return kind


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}
