"""Where tools run: sandbox, network, worktrees, snapshots, artifacts."""

from __future__ import annotations

from typing import Literal, TypeAlias

from mainspring.core.events.payload import Payload


class SandboxOpened(Payload, frozen=True, kw_only=True, tag="sandbox.opened"):
    backend: str
    level: Literal["isolated", "degraded", "container", "none"]
    flags_hash: str
    workspace: str


class NetworkRequested(Payload, frozen=True, kw_only=True, tag="network.requested"):
    """A program in the sandbox tried to reach a host. Query strings and headers are omitted."""

    host: str
    decision: Literal["allow", "deny"]
    rule: str | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    credential: str | None = None
    """Name of the secret that was inserted."""


class WorktreeOpened(Payload, frozen=True, kw_only=True, tag="worktree.opened"):
    """A thread works in a folder of its own, a git worktree of the workspace."""

    path: str
    branch: str
    commit: str


class WorktreeClosed(Payload, frozen=True, kw_only=True, tag="worktree.closed"):
    path: str
    outcome: Literal["merged", "discarded", "kept"]
    """`kept`: the branch remains for review."""
    commit: str | None = None
    reason: str | None = None


class WorkspaceSnapshotted(Payload, frozen=True, kw_only=True, tag="workspace.snapshotted"):
    snapshot: str
    files: int


class WorkspaceRestored(Payload, frozen=True, kw_only=True, tag="workspace.restored"):
    snapshot: str
    files: int
    """The number of files that it changed."""


class ArtifactPublished(Payload, frozen=True, kw_only=True, tag="artifact.published"):
    name: str
    hash: str
    size: int
    media_type: str


WorkspacePayload: TypeAlias = (
    SandboxOpened
    | NetworkRequested
    | WorktreeOpened
    | WorktreeClosed
    | WorkspaceSnapshotted
    | WorkspaceRestored
    | ArtifactPublished
)
