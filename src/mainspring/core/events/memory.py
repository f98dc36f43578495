"""What a session writes to a memory store."""

from __future__ import annotations

from typing import Literal, TypeAlias

from mainspring.core.events.payload import Payload


class MemoryWritten(Payload, frozen=True, kw_only=True, tag="memory.written"):
    store_id: str
    path: str
    operation: Literal["created", "modified", "deleted"]
    version: str | None = None


MemoryPayload: TypeAlias = MemoryWritten
