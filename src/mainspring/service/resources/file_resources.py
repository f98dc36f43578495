"""Files: uploads of clients and outputs of sessions, with their content."""

from __future__ import annotations

import mimetypes
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, NotFound, TooLarge
from mainspring.log.records import Records
from mainspring.service.storage.repository import IndexColumns, Repository

MAX_FILENAME = 255  # characters; as many bytes are Linux's NAME_MAX
Lifetime = Annotated[int, Meta(ge=3600, le=7_776_000)]
"""Seconds: one hour to ninety days."""

_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
_UNKNOWN_TYPE = "application/octet-stream"
_TYPES = mimetypes.MimeTypes()  # without the types of the machine's own files


class FileScope(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["session"] = "session"


class File(Struct, frozen=True, kw_only=True):
    id: str
    created_at: datetime
    filename: str
    mime_type: str
    size_bytes: int
    downloadable: bool = True
    expires_at: datetime | None = None
    scope: FileScope | None = None
    type: Literal["file"] = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    content: bytes
    filename: str | None = None
    """As received: only the part after the last slash is stored."""
    mime_type: str | None = None
    expires_in_seconds: int | None = None
    session_id: str | None = None
    """The session that it belongs to."""
    id: str | None = None
    """For callers that may repeat the same file; default: a new id."""


class Files:
    def __init__(
        self, records: Records, *, max_bytes: int = 100 * 1024 * 1024, clock: Clock = clocks.now
    ) -> None:
        self.max_bytes = max_bytes
        self._repository = Repository(records, "file", File, columns=_index_columns, clock=clock)
        self.get = self._repository.get
        self.page = self._repository.page
        self.delete = self._repository.remove
        self._clock = clock

    async def create(self, tenant: str, new: NewFile) -> File:
        """Raises: InvalidInput, TooLarge, AlreadyExists: the `id`."""
        if len(new.content) > self.max_bytes:
            raise TooLarge(f"a file may have at most {self.max_bytes} bytes")
        now = self._clock()
        mime_type = normalize_media_type(new.mime_type, new.filename)
        lifetime = new.expires_in_seconds
        file = File(
            id=new.id or ids.new_id("file"),
            created_at=now,
            filename=normalize_filename(new.filename, mime_type),
            mime_type=mime_type,
            size_bytes=len(new.content),
            expires_at=None if lifetime is None else now + timedelta(seconds=lifetime),
            scope=None if new.session_id is None else FileScope(id=new.session_id),
        )
        return await self._repository.put(tenant, file, content=new.content)

    async def content(self, tenant: str, file_id: str) -> tuple[File, bytes]:
        """Raises: NotFound, also once it has expired."""
        file = await self._repository.get(tenant, file_id)
        if file.expires_at is not None and file.expires_at <= self._clock():
            raise NotFound("file", f"{file_id} any more: it has expired")
        return file, await self._repository.records.content(self._repository.kind, file_id)

    async def get_many(self, tenant: str, file_ids: Sequence[str]) -> list[File]:
        """The files that exist, once each."""
        files = [await self._repository.find(tenant, id_) for id_ in dict.fromkeys(file_ids)]
        return [file for file in files if file is not None]

    async def remove_expired(self) -> int:
        """Remove expired files of all tenants; returns how many. Call it periodically."""
        return await self._repository.remove_due(self._clock())


def normalize_media_type(media_type: str | None, filename: str | None) -> str:
    """A media type without parameters; guessed by the name if none is given."""
    plain = (media_type or "").partition(";")[0].strip().lower()
    if _TYPE.fullmatch(plain) and plain != _UNKNOWN_TYPE:
        return plain
    guessed, _ = _TYPES.guess_type(filename or "")
    return guessed or _UNKNOWN_TYPE


def normalize_filename(filename: str | None, mime_type: str) -> str:
    """Raises: InvalidInput: too long."""
    last = re.split(r"[/\\]", filename or "")[-1]
    name = "".join(char for char in last if unicodedata.category(char)[0] != "C").strip()
    if len(name) > MAX_FILENAME:
        raise InvalidInput(f"filename: at most {MAX_FILENAME} characters")
    if name.strip(".") == "":
        extension = _TYPES.guess_extension(mime_type)
        return f"unnamed{extension or ''}"
    return name


def _index_columns(file: File) -> IndexColumns:
    return IndexColumns(label=file.scope.id if file.scope else "", due=file.expires_at)
