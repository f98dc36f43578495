"""A memory and its versions as they are stored and told. A text is the content of the record of
the version that it came with; the memory itself only says which version that is."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.log.records import Records
from mainspring.service.access.principal import Principal
from mainspring.service.keeping.drawer import Drawer, Tabs

MEMORY = "memory"
VERSION = "memory_version"
MAX_CONTENT_BYTES = 102_400

View: TypeAlias = Literal["basic", "full"]
Operation: TypeAlias = Literal["created", "modified", "deleted"]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class SessionActor(Struct, frozen=True, kw_only=True, tag_field="type", tag="session_actor"):
    """An agent, through the folder that it has the store in."""

    session_id: str


class ApiActor(Struct, frozen=True, kw_only=True, tag_field="type", tag="api_actor"):
    api_key_id: str


class UserActor(Struct, frozen=True, kw_only=True, tag_field="type", tag="user_actor"):
    user_id: str


Actor: TypeAlias = SessionActor | ApiActor | UserActor


def actor_of(who: Principal) -> Actor:
    kind, _, subject = who.key_id.partition(":")
    return UserActor(user_id=subject) if kind == "oidc" else ApiActor(api_key_id=who.key_id)


class Memory(Struct, frozen=True, kw_only=True, tag_field="type", tag="memory"):
    id: str
    memory_store_id: str
    memory_version_id: str
    path: str
    content_sha256: str
    content_size_bytes: int
    created_at: datetime
    updated_at: datetime
    content: str | None = None
    """Never stored here."""


class MemoryPrefix(Struct, frozen=True, kw_only=True, tag_field="type", tag="memory_prefix"):
    """Stands in a list for the memories in a folder."""

    path: str


class MemoryVersion(Struct, frozen=True, kw_only=True):
    id: str
    memory_id: str
    memory_store_id: str
    operation: Operation
    created_at: datetime
    created_by: Actor
    path: str | None
    content_sha256: str | None = None
    content_size_bytes: int | None = None
    content: str | None = None
    """Never stored here."""
    redacted_at: datetime | None = None
    redacted_by: Actor | None = None
    type: Literal["memory_version"] = "memory_version"

    @property
    def has_content(self) -> bool:
        return self.content_sha256 is not None


class CreateMemory(Struct, frozen=True, kw_only=True):
    path: str
    content: str


class Precondition(Struct, frozen=True, kw_only=True, tag_field="type", tag="content_sha256"):
    content_sha256: Digest


class UpdateMemory(Struct, frozen=True, kw_only=True):
    path: str | None = None
    content: str | None = None
    precondition: Precondition | UnsetType | None = UNSET


def encoded(content: str) -> bytes:
    """Raises: InvalidInput: too large."""
    raw = content.encode()
    if len(raw) > MAX_CONTENT_BYTES:
        raise InvalidInput(
            f"content: {len(raw)} bytes, and a memory has {MAX_CONTENT_BYTES} at most; make several"
        )
    return raw


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def version_of(memory: Memory, operation: Operation, actor: Actor) -> MemoryVersion:
    """What is kept of a change that made the memory so."""
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
        version,
        content_sha256=memory.content_sha256,
        content_size_bytes=memory.content_size_bytes,
    )


def redacted(version: MemoryVersion, actor: Actor, now: datetime) -> MemoryVersion:
    return replace(
        version,
        path=None,
        content_sha256=None,
        content_size_bytes=None,
        redacted_at=now,
        redacted_by=actor,
    )


def memory_drawer(records: Records, clock: Clock) -> Drawer[Memory]:
    return Drawer(
        records,
        MEMORY,
        Memory,
        tabs=lambda memory: Tabs(
            parent=memory.memory_store_id, name=memory.path, created=memory.created_at
        ),
        clock=clock,
    )


def version_drawer(records: Records, clock: Clock) -> Drawer[MemoryVersion]:
    return Drawer(
        records,
        VERSION,
        MemoryVersion,
        tabs=lambda version: Tabs(
            parent=version.memory_store_id, label=version.memory_id, created=version.created_at
        ),
        clock=clock,
    )
