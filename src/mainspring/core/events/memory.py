"""Memories that a session reads and writes."""

from __future__ import annotations

from typing import Literal, TypeAlias

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


MemoryPayload: TypeAlias = MemoryWritten | MemoryRecalled
