"""Snapshots of the workspace before the first effect of a session and after each later one."""

from __future__ import annotations

from dataclasses import replace

from mainspring.core import events
from mainspring.core.errors import ToolEnvironmentError
from mainspring.harness.thread_context import ThreadContext

SNAPSHOT_FAILED = "snapshot_failed"
"""The error type of a failed snapshot; it is reported once."""


async def snapshot_before_effects(context: ThreadContext) -> None:
    """Take a snapshot before the first effect, so that the session can be rewound."""
    if context.thread.session_state.snapshot is None:
        await take_snapshot(context)


async def take_snapshot(context: ThreadContext) -> None:
    snapshots = context.toolbox.snapshots
    if snapshots is None:
        return
    try:
        snapshot, files = await snapshots.take()
    except ToolEnvironmentError as error:
        context.toolbox = replace(context.toolbox, snapshots=None)  # reported once
        status = events.RetryStatus(type="terminal")
        detail = events.ErrorDetail(type=SNAPSHOT_FAILED, message=str(error), retry_status=status)
        context.note(events.SessionFailed(error=detail))
        return
    if snapshot != context.thread.session_state.snapshot:
        context.note(events.WorkspaceSnapshotted(snapshot=snapshot, files=files))
