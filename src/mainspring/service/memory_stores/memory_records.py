"""Memories and their versions as they are stored and shown, and the rules for memory paths. The
text is stored with the version; the memory says which version is current."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.log.records import Records
from mainspring.service.access.principal import Principal
from mainspring.service.storage.repository import IndexColumns, Repository

MEMORY_KIND = "memory"
VERSION_KIND = "memory_version"
MAX_CONTENT_BYTES = 102_400  # the Managed Agents API's own limit

MemoryView: TypeAlias = Literal["basic", "full"]
MemoryOperation: TypeAlias = Literal["created", "modified", "deleted"]
ContentDigest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class SessionActor(Struct, frozen=True, kw_only=True, tag_field="type", tag="session_actor"):
    """An agent, through the folder where the store is mounted."""

    session_id: str


class ApiActor(Struct, frozen=True, kw_only=True, tag_field="type", tag="api_actor"):
    api_key_id: str


class UserActor(Struct, frozen=True, kw_only=True, tag_field="type", tag="user_actor"):
    user_id: str


MemoryActor: TypeAlias = SessionActor | ApiActor | UserActor


def actor_of(principal: Principal) -> MemoryActor:
    kind, _, subject = principal.key_id.partition(":")
    return UserActor(user_id=subject) if kind == "oidc" else ApiActor(api_key_id=principal.key_id)


class MemoryObject(Struct, frozen=True, kw_only=True, tag_field="type", tag="memory"):
    id: str
    memory_store_id: str
    memory_version_id: str
    path: str
    content_sha256: str
    content_size_bytes: int
    created_at: datetime
    updated_at: datetime
    content: str | None = None
    """Only in responses with the full view."""


class MemoryPrefix(Struct, frozen=True, kw_only=True, tag_field="type", tag="memory_prefix"):
    """Represents the memories in a folder."""

    path: str


class MemoryVersion(Struct, frozen=True, kw_only=True):
    id: str
    memory_id: str
    memory_store_id: str
    operation: MemoryOperation
    created_at: datetime
    created_by: MemoryActor
    path: str | None
    content_sha256: str | None = None
    content_size_bytes: int | None = None
    content: str | None = None
    """Only in responses with the full view."""
    redacted_at: datetime | None = None
    redacted_by: MemoryActor | None = None
    type: Literal["memory_version"] = "memory_version"

    @property
    def has_content(self) -> bool:
        return self.content_sha256 is not None


class CreateMemory(Struct, frozen=True, kw_only=True):
    path: str
    content: str


class Precondition(Struct, frozen=True, kw_only=True, tag_field="type", tag="content_sha256"):
    content_sha256: ContentDigest


class UpdateMemory(Struct, frozen=True, kw_only=True):
    path: str | None = None
    content: str | None = None
    precondition: Precondition | UnsetType | None = UNSET


def encode_content(content: str) -> bytes:
    """Raises: InvalidInput: too large."""
    raw = content.encode()
    if len(raw) > MAX_CONTENT_BYTES:
        raise InvalidInput(
            f"content: {len(raw)} bytes; a memory may have at most {MAX_CONTENT_BYTES}; split it"
        )
    return raw


def content_digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def version_of(
    memory: MemoryObject, operation: MemoryOperation, actor: MemoryActor
) -> MemoryVersion:
    """The version that records a change of the memory."""
    version = MemoryVersion(
        id=memory.memory_version_id,
        memory_id=memory.id,
        memory_store_id=memory.memory_store_id,
        operation=operation,
        created_at=memory.updated_at,
        created_by=actor,
        path=memory.path,
    )
    if operation == "deleted":
        return version
    return replace(
        version, content_sha256=memory.content_sha256, content_size_bytes=memory.content_size_bytes
    )


def redact_version(version: MemoryVersion, actor: MemoryActor, now: datetime) -> MemoryVersion:
    return replace(
        version,
        path=None,
        content_sha256=None,
        content_size_bytes=None,
        redacted_at=now,
        redacted_by=actor,
    )


def memory_repository(records: Records, clock: Clock) -> Repository[MemoryObject]:
    return Repository(
        records,
        MEMORY_KIND,
        MemoryObject,
        columns=lambda memory: IndexColumns(
            parent=memory.memory_store_id, name=memory.path, created=memory.created_at
        ),
        clock=clock,
    )


def version_repository(records: Records, clock: Clock) -> Repository[MemoryVersion]:
    return Repository(
        records,
        VERSION_KIND,
        MemoryVersion,
        columns=lambda version: IndexColumns(
            parent=version.memory_store_id, label=version.memory_id, created=version.created_at
        ),
        clock=clock,
    )


MAX_PATH_BYTES = 1024  # the Managed Agents API's own limit
MAX_SEGMENTS = 20  # of a path
_FORBIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Categories: controls, formats, surrogates, line and paragraph separators."""
LAST_CHARACTER = "\U0010ffff"
"""Greater than any character of a path: sorts after all paths in a folder."""


def check_path(path: str) -> str:
    """Raises: InvalidInput."""
    if not path.startswith("/"):
        raise InvalidInput("path: must begin with /")
    _check_segments(path, path[1:].split("/"))
    return path


def check_prefix(prefix: str) -> str:
    """The prefix of a list: `/`, or a path and `/`.

    Raises: InvalidInput.
    """
    if not prefix.startswith("/") or not prefix.endswith("/"):
        raise InvalidInput("path_prefix: must begin and end with /")
    if prefix != "/":
        _check_segments(prefix, prefix[1:-1].split("/"))
    return prefix


def _check_segments(path: str, segments: list[str]) -> None:
    if len(path.encode(errors="surrogatepass")) > MAX_PATH_BYTES:
        raise InvalidInput(f"path: at most {MAX_PATH_BYTES} bytes")
    if len(segments) > MAX_SEGMENTS:
        raise InvalidInput(f"path: at most {MAX_SEGMENTS} segments")
    if any(segment in ("", ".", "..") for segment in segments):
        raise InvalidInput("path: a segment must not be empty, . or ..")
    if any(_is_forbidden(item) for item in path):
        raise InvalidInput("path: must not contain control, format or separator characters")
    if not unicodedata.is_normalized("NFC", path):
        raise InvalidInput("path: must be in Unicode normalization form C")


def _is_forbidden(character: str) -> bool:
    is_noncharacter = ord(character) & 0xFFFE == 0xFFFE
    return is_noncharacter or unicodedata.category(character) in _FORBIDDEN_CATEGORIES


def parent_folders(path: str) -> list[str]:
    """The parent folders of a path, none of which may be a memory."""
    segments = path.split("/")
    return ["/".join(segments[:end]) for end in range(2, len(segments))]


def folder_at_depth(path: str, prefix: str, depth: int) -> str | None:
    """The folder that represents a path in a list of this depth; `None`: it is listed itself."""
    below = path[len(prefix) :].split("/")
    if depth == 0 or len(below) <= depth:
        return None
    return f"{prefix}{'/'.join(below[:depth])}/"
