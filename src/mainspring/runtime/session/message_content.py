"""A user's message as a program writes it: text, blocks and files, one or several."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from anyio import to_thread

from mainspring.core.content import (
    Base64Source,
    Block,
    DocumentBlock,
    ImageBlock,
    PlainTextSource,
    TextBlock,
)
from mainspring.core.errors import InvalidInput

Content: TypeAlias = str | Path | Block | Sequence[str | Path | Block]
"""Text, a file, a block, or several of them. Images, PDF files and text files can be sent."""

MAX_FILE_BYTES = 20_000_000  # of an attached file, before it is encoded
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


async def content_blocks(content: Content) -> tuple[Block, ...]:
    """
    Raises:
        InvalidInput: a file cannot be read, or is of a kind that models do not read.
    """
    if isinstance(content, str):
        return (TextBlock(content),)
    parts = content if isinstance(content, Sequence) else (content,)
    return tuple([await _block(part) for part in parts])


async def _block(part: str | Path | Block) -> Block:
    if isinstance(part, str):
        return TextBlock(part)
    if isinstance(part, Path):
        return await to_thread.run_sync(_file_block, part)
    return part


def _file_block(path: Path) -> Block:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(f"{path} is larger than {MAX_FILE_BYTES:,} bytes")
    media_type = mimetypes.guess_type(path.name)[0] or ""
    if media_type in _IMAGES:
        return ImageBlock(source=_encoded(media_type, data))
    if media_type == "application/pdf":
        return DocumentBlock(source=_encoded(media_type, data), title=path.name)
    try:
        return DocumentBlock(source=PlainTextSource(data=data.decode()), title=path.name)
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{path} is not an image (PNG, JPEG, GIF, WebP), a PDF or UTF-8 text"
        ) from None


def _encoded(media_type: str, data: bytes) -> Base64Source:
    return Base64Source(media_type=media_type, data=base64.b64encode(data).decode())
