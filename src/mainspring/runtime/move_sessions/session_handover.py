"""Seals a session at its origin and resumes it at its destination.

The log decides which copy continues: after `session.moved` neither, after `session.received` the
one that has that event. The receiver chooses the transfer's id before it asks, so an interrupted
transfer is repeated under the same id, and nobody else can resume the session.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Collection
from contextlib import aclosing
from pathlib import Path

from anyio import to_thread

from mainspring.core import ids
from mainspring.core.errors import InvalidInput, SessionGone, SessionNotFound, StaleVersion
from mainspring.core.events import SessionMoved, SessionReceived
from mainspring.log.container import import_lines
from mainspring.log.session_lease import hold_session, local_owner
from mainspring.log.session_log import SessionLog
from mainspring.runtime.move_sessions.session_bundle import (
    SessionBundle,
    UploadLimits,
    open_checked,
)
from mainspring.runtime.move_sessions.workspace_archive import MAX_ENTRIES
from mainspring.runtime.session.session_summary import summarize_session, workspace_of

_LIMITS = UploadLimits(max_bytes=8 << 30, max_entries=MAX_ENTRIES + 2)
"""The log and the manifest are entries as well."""
_MOVABLE_STATUSES = ("new", "idle", "requires_action")


async def seal(log: SessionLog, session_id: str, transfer_id: str) -> None:
    """End the session here for this transfer. Idempotent.

    Raises:
        SessionGone: another transfer moved it.
        StaleVersion: it is running, or has unread messages.
        InvalidInput: it is a fork.
        LeaseHeld.
    """
    [last] = await log.tail(session_id, 1)
    if isinstance(last.payload, SessionMoved):
        if last.payload.transfer_id != transfer_id:
            raise SessionGone(session_id)
        return
    await check_can_move(log, session_id)
    async with hold_session(log, session_id) as writer:
        await writer.append(SessionMoved(transfer_id=transfer_id))
        if await log.store.pending(session_id, limit=1):  # it arrived before the session was sealed
            workspace = await workspace_of(log, session_id) or ""
            await writer.append(SessionReceived(transfer_id=transfer_id, workspace=workspace))
            raise StaleVersion(
                f"session {session_id} received a message in the meantime: let it answer first"
            )


async def check_can_move(log: SessionLog, session_id: str) -> None:
    """
    Raises:
        StaleVersion: it is running, or has unread messages.
        InvalidInput: it is a fork.
    """
    session = await log.session(session_id)
    if session.parent_id is not None:
        raise InvalidInput(f"session {session_id} is a fork; forks cannot move")
    status = (await summarize_session(log, session)).status
    if status not in _MOVABLE_STATUSES:
        raise StaleVersion(
            f"session {session_id} is {status}: let it end or interrupt it, then move it"
        )


async def receive(
    log: SessionLog,
    file: Path,
    *,
    session_id: str,
    transfer_id: str,
    workspace: Path,
    hidden: Collection[str] = (),
) -> tuple[str, ...]:
    """Store a received bundle and continue the session here. Idempotent. Returns the paths that the
    sender left out.

    `hidden` are names at the top of a workspace that never belong to it. The workspace is stored
    whole or not at all; an existing one belongs to this transfer. The log comes last and in one
    step: until then the sender's rules and hooks apply.

    Raises:
        InvalidInput, TooLarge: it differs from what was sent; the session does not continue here.
    """
    try:
        with open_checked(file, _LIMITS) as archive:
            bundle = SessionBundle.read(archive, session_id=session_id, transfer_id=transfer_id)
            left_out = bundle.bundle_manifest.left_out
            last_seq = await to_thread.run_sync(bundle.check_log)
            if await _is_received(log, session_id, transfer_id, sent=last_seq):
                return left_out
            await to_thread.run_sync(_place_workspace, bundle, workspace, hidden)
            async with aclosing(bundle.lines()) as lines:
                await import_lines(log, lines)
    except RecursionError:
        raise InvalidInput("the received file is nested too deeply") from None
    except tarfile.TarError as error:
        raise InvalidInput(f"the received file is not a session bundle: {error}") from error
    writer = await log.hold(
        session_id, owner=local_owner(ids.new_id(ids.WORKER)), is_receiving=True
    )
    try:
        if not await _is_received(log, session_id, transfer_id, sent=last_seq):
            [last] = await log.tail(session_id, 1)
            if last.payload != SessionMoved(transfer_id=transfer_id):
                raise InvalidInput(f"session {session_id} was moved by another transfer")
            received = SessionReceived(transfer_id=transfer_id, workspace=str(workspace))
            await writer.append(received)
    finally:
        await writer.release()
    return left_out


async def _is_received(log: SessionLog, session_id: str, transfer_id: str, *, sent: int) -> bool:
    """Whether our log has the session continue here, after the events up to `sent`, which are only
    the sender's claim. A session that has moved on since does not continue here."""
    try:
        [last] = await log.tail(session_id, 1)
    except SessionNotFound:
        return False
    if isinstance(last.payload, SessionMoved):
        return False
    events = await log.read(session_id, after=sent, limit=1)
    payload = events[0].payload if events else None
    return isinstance(payload, SessionReceived) and payload.transfer_id == transfer_id


def _place_workspace(bundle: SessionBundle, workspace: Path, hidden: Collection[str]) -> None:
    if workspace.exists():
        return
    staging = workspace.with_name(f".{workspace.name}.{bundle.bundle_manifest.transfer_id}")
    shutil.rmtree(staging, ignore_errors=True)  # left by an attempt that was killed
    bundle.unpack_workspace(staging, hidden=hidden)
    staging.rename(workspace)
