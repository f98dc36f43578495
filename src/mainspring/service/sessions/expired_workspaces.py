"""Remove the workspaces of sessions that nobody has used for long."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from anyio import to_thread

from mainspring.core.errors import LeaseHeld, NotFound, SessionNotFound, StoreCorrupt
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.service.sessions.workspace_expiry import WorkspaceExpiry
from mainspring.service.storage.repository import SESSION_KIND

_LOG = logging.getLogger("mainspring.workspaces")
EXPIRED_SUFFIX = "-expired"
"""Ends the name of a workspace that is being removed."""
_LEASE_OWNER = "workspace_expiry"
_LEASE_SECONDS = 120.0


class ExpiredWorkspaceSweeper:
    def __init__(
        self,
        workspaces: Path,
        log: SessionLog,
        expiry: WorkspaceExpiry,
        *,
        remove_workspace: Callable[[str], Awaitable[None]],
        remove_expired: Callable[[Path, str], None],
    ) -> None:
        """`remove_workspace` takes a session's id and may raise OSError; `remove_expired` a folder
        and the name of a workspace that was moved away there."""
        self._folder = workspaces
        self._log = log
        self._expiry = expiry
        self._remove_workspace = remove_workspace
        self._remove_expired = remove_expired

    async def sweep(self) -> int:
        """Announce workspaces that will be removed soon and remove those that are due; how many."""
        removed = 0
        for name in await to_thread.run_sync(_workspace_names, self._folder):
            if name.endswith(EXPIRED_SUFFIX):  # a process died or could not remove it
                await to_thread.run_sync(self._remove_expired, self._folder, name)
                continue
            try:
                removed += await self._check(name)
            except (NotFound, SessionNotFound, LeaseHeld):
                continue
            except (OSError, StoreCorrupt) as error:  # the others are still checked
                _LOG.warning("the workspace of session %s was not removed: %s", name, error)
        return removed

    async def _check(self, session_id: str) -> bool:
        tenant = (await self._log.store.records.get(SESSION_KIND, session_id)).tenant
        row = await self._log.session(session_id)
        if await self._log.store.pending(session_id, limit=1):
            return False  # it has new messages
        match await self._expiry.next_step(tenant, row):
            case "keep":
                return False
            case "tell":
                await self._expiry.tell(tenant, session_id)
                _LOG.info("the workspace of session %s will be removed soon", session_id)
                return False
            case "remove":
                return await self._remove(tenant, row)

    async def _remove(self, tenant: str, row: SessionRow) -> bool:
        """Hold the session meanwhile, so that nobody can run it.

        Raises: LeaseHeld: somebody runs it.
        """
        session_id = row.id
        writer = await self._log.hold(session_id, owner=_LEASE_OWNER, seconds=_LEASE_SECONDS)
        try:
            if (await self._log.session(session_id)).head.seq != row.head.seq:
                return False  # it was used just now
            await self._expiry.note_removal(tenant, session_id)
            await self._remove_workspace(session_id)
        finally:
            await writer.release()
        _LOG.info("the workspace of session %s was removed: nobody used it", session_id)
        return True


def _workspace_names(folder: Path) -> list[str]:
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    return [entry.name for entry in entries if entry.is_dir() and entry.name.startswith("sesn_")]
