"""Memories that a session reads and writes."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events.payload import Payload


class MemoryWritten(Payload, frozen=True, kw_only=True, tag="memory.written"):
    store_id: str
    path: str
    operation: Literal["created", "modified", "deleted"]
    version: str | None = None
    reason: str | None = None
    trust: str | None = None
    """Where it comes from: `person`, `agent` or `foreign`."""


class MemoryRecalled(Payload, frozen=True, kw_only=True, tag="memory.recalled"):
    """A memory was shown to the model."""

    store_id: str
    """The scope `agent`, `user` or `team`, or a memory store; for a message of an earlier session,
    `session` if a person wrote it and `session_agent` if the agent did."""
    path: str
    """The path of the memory; for a message, the id of its session."""
    version: str
    """Hash of its content; for a message, the id of its event."""
    rank: int
    score_parts: dict[str, float]
    """The parts that add up to its score; empty if it was read by its path."""
    tokens: int


class RefusedOperation(Struct, frozen=True, kw_only=True):
    """What a model wanted to change in memory, and why it may not."""

    operation: str
    """Its beginning, as the model wrote it."""
    problem: str


class MemoryExtracted(Payload, frozen=True, kw_only=True, tag="memory.extracted"):
    """A model has read what people said in this session. Its answer is paid and recorded; the
    changes are made next, also by another process."""

    request_id: str
    until_seq: int
    """The last event that it covers: the next request begins after it."""
    changes: int
    proposal: str | None = None
    """The blob with the changes of memories; absent if there are none."""
    refused: tuple[RefusedOperation, ...] = ()


class MemoryLearned(Payload, frozen=True, kw_only=True, tag="memory.learned"):
    """The changes of a `memory.extracted` are made."""

    request_id: str
    versions: tuple[str, ...] = ()
    refused: tuple[RefusedOperation, ...] = ()
    """Changes that were not made: the memory has changed since, or may not be written."""


MemoryPayload: TypeAlias = MemoryWritten | MemoryRecalled | MemoryExtracted | MemoryLearned
