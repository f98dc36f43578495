"""Dreams: passes over past sessions that propose changes of memories."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events.payload import Payload


class DreamScore(Struct, frozen=True, kw_only=True):
    """The scores of a suite with the memories as they were and with the proposed changes."""

    suite: str
    before: float
    after: float
    """Like `before`, the share of trials that passed."""
    before_run_id: str
    after_run_id: str


class DreamCreated(Payload, frozen=True, kw_only=True, tag="dream.created"):
    """Recorded in the log of the dream, which is a session of its own."""

    dream_id: str
    store_id: str
    """The scope `agent` or `user`, or a memory store."""
    session_ids: tuple[str, ...]
    """The sessions to read; they are never changed."""
    policy: Literal["review", "apply"]
    """Whether a person decides on the changes."""
    model: str | None = None
    instructions: str | None = None
    budget_usd: str | None = None


class DreamProposed(Payload, frozen=True, kw_only=True, tag="dream.proposed"):
    dream_id: str
    proposal: str
    """Hash of the blob with the changes, each with its evidence."""
    changes: int
    score: DreamScore | None = None


class DreamApplied(Payload, frozen=True, kw_only=True, tag="dream.applied"):
    dream_id: str
    versions: tuple[str, ...]
    """Versions of the memories that it changed."""
    refused: tuple[str, ...] = ()
    """Paths that had changed in the meantime and were left alone."""


class DreamRolledBack(Payload, frozen=True, kw_only=True, tag="dream.rolled_back"):
    """The changes were reverted, or not applied because a suite scored worse with them."""

    dream_id: str
    reason: str
    versions: tuple[str, ...] = ()
    """Versions that the revert created."""


DreamPayload: TypeAlias = DreamCreated | DreamProposed | DreamApplied | DreamRolledBack
