"""File transfer over HTTP: uploads as `multipart/form-data`, read part by part within limits,
and downloads that a browser saves and never runs.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

import anyio
from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from mainspring.core.errors import InvalidInput, TooLarge

MULTIPART = "multipart/form-data"

_CHUNK_BYTES = 1 << 18  # sent at once: 256 kB
_MAX_FIELD_BYTES = 65_536
"""How much each part may add to `Content-Length` beyond the limit of the content."""
_UPLOAD_SECONDS = 600.0
"""How long the whole upload may take."""
_PLAIN_ENCODINGS = ("binary", "8bit", "7bit")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormPart:
    name: str
    """The name of the field, without the `[]` that marks a list."""
    content: bytes
    filename: str | None = None
    media_type: str | None = None

    def text(self) -> str:
        """Raises: InvalidInput."""
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            raise InvalidInput(f"{self.name}: not UTF-8") from None


@dataclass(frozen=True, slots=True)
class Form:
    parts: Sequence[FormPart]

    @property
    def fingerprint(self) -> str:
        """Hash of the content; multipart boundaries differ between attempts."""
        digest = hashlib.sha256()
        for part in self.parts:
            content = hashlib.sha256(part.content).hexdigest()
            digest.update(
                f"{part.name!r} {part.filename!r} {part.media_type!r} {content}\n".encode()
            )
        return digest.hexdigest()

    def files(self, name: str) -> list[FormPart]:
        return [part for part in self.parts if part.name == name]

    def field(self, name: str) -> str | None:
        """Raises: InvalidInput: it is repeated, or not text."""
        files = self.files(name)
        if len(files) > 1:
            raise InvalidInput(f"{name}: must occur only once")
        return files[0].text() if files else None


class UploadLimiter:
    """Limits concurrent uploads, because each is held in memory as a whole. Others wait before they
    are read; those of one tenant first wait for each other."""

    def __init__(self, *, in_process: int = 16, of_tenant: int = 4) -> None:
        self._all = anyio.Semaphore(in_process)
        self._of_tenant = defaultdict[str, anyio.Semaphore](lambda: anyio.Semaphore(of_tenant))

    @asynccontextmanager
    async def slot(self, tenant: str) -> AsyncGenerator[None, None]:
        async with self._of_tenant[tenant], self._all:
            yield


async def read_form(request: web.Request, *, max_bytes: int, max_parts: int) -> Form:
    """Read a form. `max_bytes` applies to all parts together.

    Raises: InvalidInput, TooLarge.
    """
    if request.content_type != MULTIPART:
        raise InvalidInput(f"the request must be {MULTIPART}, not {request.content_type}")
    overhead = max_parts * _MAX_FIELD_BYTES
    if request.content_length is not None and request.content_length > max_bytes + overhead:
        raise _too_large_error(max_bytes)
    try:
        with anyio.fail_after(_UPLOAD_SECONDS):
            return await _read_parts(request, max_bytes, max_parts)
    # aiohttp has no specific error for a malformed body: its reader raises these.
    except (ValueError, RuntimeError, AssertionError, HttpProcessingError) as error:
        raise InvalidInput(f"the request is not well-formed {MULTIPART}") from error


async def _read_parts(request: web.Request, max_bytes: int, max_parts: int) -> Form:
    parts: list[FormPart] = []
    remaining = max_bytes
    reader = await request.multipart()
    while (body := await reader.next()) is not None:
        if not isinstance(body, BodyPartReader) or not body.name:
            raise InvalidInput("every part must have a name, and parts must not be nested")
        if len(parts) == max_parts:
            raise TooLarge(f"a request may have at most {max_parts} parts")
        if body.headers.get("content-transfer-encoding", "binary").lower() not in _PLAIN_ENCODINGS:
            raise InvalidInput(
                f"{body.name}: content-transfer-encoding must be binary, 8bit or 7bit"
            )
        content = await _read_content(body, remaining)
        if content is None:
            raise _too_large_error(max_bytes)
        remaining -= len(content)
        parts.append(
            FormPart(
                name=body.name.removesuffix("[]"),
                content=content,
                filename=body.filename,
                media_type=body.headers.get("content-type"),
            )
        )
    return Form(parts)


async def _read_content(body: BodyPartReader, max_bytes: int) -> bytes | None:
    """The content of a part; `None` if it is larger than the limit."""
    chunks: list[bytes] = []
    size = 0
    while not body.at_eof():
        chunk = await body.read_chunk(_CHUNK_BYTES)
        size += len(chunk)
        if size > max_bytes:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large_error(max_bytes: int) -> TooLarge:
    return TooLarge(f"an upload may have at most {max_bytes} bytes")


_SAFE_FILENAME_CHARS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._- ()"
)


def attachment(content: bytes, *, filename: str, media_type: str) -> web.Response:
    return web.Response(
        body=content,
        headers={
            "content-type": media_type,
            "content-disposition": content_disposition(filename),
            "x-content-type-options": "nosniff",
            "content-security-policy": "default-src 'none'; sandbox",
        },
    )


def content_disposition(filename: str) -> str:
    """The header with the file name twice: encoded for clients that support it, and in ASCII."""
    plain = "".join(char if char in _SAFE_FILENAME_CHARS else "_" for char in filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
