"""Workspaces on this machine that no session has used for long: they are removed."""

from __future__ import annotations

import logging
from pathlib import Path

from anyio import to_thread

from mainspring.config import Settings
from mainspring.core.errors import LeaseHeld, NotFound, SessionNotFound, StoreCorrupt
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.service.sessions.record import KIND
from mainspring.service.work.workspace_expiry import WorkspaceExpiry
from mainspring.wiring.clearing import EXPIRED, Clearing, remove_expired

_LOG = logging.getLogger("mainspring.workspaces")
_OWNER = "workspace_expiry"
_LEASE_SECONDS = 120.0


class Expiring:
    def __init__(
        self, settings: Settings, log: SessionLog, expiry: WorkspaceExpiry, clearing: Clearing
    ) -> None:
        self._folder = Path(settings.workspaces)
        self._log = log
        self._expiry = expiry
        self._clearing = clearing

    async def sweep(self) -> int:
        """Tell of those that will be removed soon, and remove those that are due; how many."""
        removed = 0
        for name in await to_thread.run_sync(_names, self._folder):
            if name.endswith(EXPIRED):  # a process died over it, or could not remove it
                await to_thread.run_sync(remove_expired, self._folder, name)
                continue
            try:
                removed += await self._look_after(name)
            except (NotFound, SessionNotFound, LeaseHeld):
                continue
            except (OSError, StoreCorrupt) as error:  # no reason to leave all others alone
                _LOG.warning("the workspace of session %s was not removed: %s", name, error)
        return removed

    async def _look_after(self, session_id: str) -> bool:
        tenant = (await self._log.store.records.get(KIND, session_id)).tenant
        row = await self._log.session(session_id)
        if await self._log.store.pending(session_id, limit=1):
            return False  # somebody has written to it
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
        """While nobody can run the session.

        Raises: LeaseHeld: somebody does.
        """
        session_id = row.id
        writer = await self._log.hold(session_id, owner=_OWNER, seconds=_LEASE_SECONDS)
        try:
            if (await self._log.session(session_id)).head.seq != row.head.seq:
                return False  # it was used just now
            await self._expiry.note_removal(tenant, session_id)
            await self._clearing.remove_workspace(session_id)
        finally:
            await writer.release()
        _LOG.info("the workspace of session %s was removed: nobody used it", session_id)
        return True


def _names(folder: Path) -> list[str]:
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    return [each.name for each in entries if each.is_dir() and each.name.startswith("sesn_")]
