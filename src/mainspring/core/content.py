"""Content blocks of messages and tool results. Field names are the Managed Agents ones."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.ids import FileId


class Base64Source(Struct, frozen=True, kw_only=True, tag_field="type", tag="base64"):
    media_type: str
    data: str


class UrlSource(Struct, frozen=True, kw_only=True, tag_field="type", tag="url"):
    url: str


class FileSource(Struct, frozen=True, kw_only=True, tag_field="type", tag="file"):
    file_id: FileId


class PlainTextSource(Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    data: str
    media_type: Literal["text/plain"] = "text/plain"


class BlobSource(Struct, frozen=True, kw_only=True, tag_field="type", tag="blob"):
    """An extension of the API: bytes stored beside the log, named by their hash."""

    hash: str
    size: int
    media_type: str


ImageSource: TypeAlias = Base64Source | UrlSource | FileSource | BlobSource
DocumentSource: TypeAlias = Base64Source | PlainTextSource | UrlSource | FileSource | BlobSource


class TextBlock(Struct, frozen=True, tag_field="type", tag="text", gc=False):
    text: str


class ImageBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="image"):
    source: ImageSource


class DocumentBlock(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="document"
):
    source: DocumentSource
    title: str | None = None
    context: str | None = None


class SearchResultCitations(Struct, frozen=True, kw_only=True):
    enabled: bool


class SearchResultBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="search_result"):
    source: str
    title: str
    content: tuple[TextBlock, ...]
    citations: SearchResultCitations


class RedactedBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="redacted"):
    """Replaces removed content; the event itself stays in its place."""


class BlobBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="blob"):
    """Our extension: a result above its size limit. The model reads the preview; the whole
    result is a blob."""

    preview: str
    hash: str
    size: int
    media_type: str = "text/plain"


Block: TypeAlias = (
    TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | RedactedBlock | BlobBlock
)


def plain_text(blocks: tuple[Block, ...]) -> str:
    """The concatenated text of blocks; media have none."""
    return "\n".join(text for block in blocks if (text := _text(block)))


def _text(block: Block) -> str:
    match block:
        case TextBlock(text=text):
            return text
        case BlobBlock(preview=preview):
            return preview
        case SearchResultBlock(title=title, content=content):
            return "\n".join([title, *(part.text for part in content)])
        case DocumentBlock(source=PlainTextSource(data=data)):
            return data
        case ImageBlock() | DocumentBlock() | RedactedBlock():
            return ""
