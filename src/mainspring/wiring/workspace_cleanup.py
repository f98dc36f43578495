"""Remove workspaces of the service: those of deleted sessions, and those that no session has
used for long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.sandbox.readonly_mounts import (
    remove_folder,
    remove_readonly_mount,
    remove_sandbox_folders,
    remove_transcripts,
)
from mainspring.capabilities.sandbox.session_uids import release_session_uid
from mainspring.config import Settings
from mainspring.core import ids
from mainspring.core.errors import LeaseHeld, NotFound, SessionNotFound, StaleVersion, StoreCorrupt
from mainspring.log.records import Records
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.sessions.workspace_expiry import WorkspaceExpiry
from mainspring.service.storage.repository import SESSION_KIND
from mainspring.wiring.sandbox_environment import served_session_paths
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.session_skills import skills_folder
from mainspring.wiring.workspace_setup import mounted_ids_file
from mainspring.wiring.worktrees import worktrees_folder

_LOG = logging.getLogger("mainspring.workspaces")
CLEAR_TASK = "clear"
EXPIRED_SUFFIX = "-expired"
"""How the name of a workspace ends that is being removed."""


class WorkspaceCleaner:
    def __init__(
        self,
        settings: Settings,
        records: Records,
        sandboxes: SandboxPool,
        *,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._settings = settings
        self._records = records
        self._sandboxes = sandboxes
        self._new_id = new_id

    async def clear(self, job: Job) -> None:
        """Of the session whose id the job has for its key.

        Raises: Stale: it is still there; then it is tried again.
        """
        try:
            await self._records.get(SESSION_KIND, job.key)
        except NotFound:
            await self._sandboxes.discard(job.key)
            await to_thread.run_sync(self._remove, job.key)
        else:
            raise StaleVersion(f"session {job.key} is still being deleted")

    async def remove_workspace(self, session_id: str) -> None:
        """Of a session that stays: it may go on in a new one, under the same uid, and its hooks may
        read its transcripts.

        Raises: OSError.
        """
        await self._sandboxes.discard(session_id)
        await to_thread.run_sync(self._move_away, session_id)

    def _move_away(self, session_id: str) -> None:
        """In one step: no run finds half a workspace, whenever this process dies."""
        self._remove_beside(session_id)
        workspace = Path(self._settings.workspaces) / session_id
        expired = workspace.with_name(self._new_id(session_id) + EXPIRED_SUFFIX)
        workspace.rename(expired)
        remove_expired(workspace.parent, expired.name)

    def _remove(self, session_id: str) -> None:
        self._remove_beside(session_id)
        places = served_session_paths(self._settings, session_id)
        remove_transcripts(places.transcripts, session_id)
        folder = Path(self._settings.workspaces)
        if remove_folder(folder, session_id):
            release_session_uid(session_id)
        else:  # nobody else may get the uid that has files there
            _LOG.warning("the workspace of session %s could not be removed whole", session_id)

    def _remove_beside(self, session_id: str) -> None:
        workspace = Path(self._settings.workspaces) / session_id
        places = served_session_paths(self._settings, session_id)
        remove_folder(places.snapshots.parent, places.snapshots.name)
        remove_sandbox_folders(places.state.parent, session_id)
        remove_folder(worktrees_folder(places, session_id).parent, session_id)
        remove_readonly_mount(session_id)
        mounted_ids_file(workspace).unlink(missing_ok=True)
        remove_folder(workspace.parent, skills_folder(workspace).name)


def remove_expired(folder: Path, name: str) -> None:
    """A workspace that was moved away; what cannot be removed is tried again at the next sweep."""
    if not remove_folder(folder, name):
        _LOG.warning("%s in %s could not be removed whole: remove it by hand", name, folder)


_EXPIRY_LOG = logging.getLogger("mainspring.workspaces")
_LEASE_OWNER = "workspace_expiry"
_LEASE_SECONDS = 120.0


class ExpiredWorkspaceSweeper:
    def __init__(
        self,
        settings: Settings,
        log: SessionLog,
        expiry: WorkspaceExpiry,
        workspace_cleaner: WorkspaceCleaner,
    ) -> None:
        self._folder = Path(settings.workspaces)
        self._log = log
        self._expiry = expiry
        self._workspace_cleaner = workspace_cleaner

    async def sweep(self) -> int:
        """Tell of those that will be removed soon, and remove those that are due; how many."""
        removed = 0
        for name in await to_thread.run_sync(_workspace_names, self._folder):
            if name.endswith(EXPIRED_SUFFIX):  # a process died over it, or could not remove it
                await to_thread.run_sync(remove_expired, self._folder, name)
                continue
            try:
                removed += await self._look_after(name)
            except (NotFound, SessionNotFound, LeaseHeld):
                continue
            except (OSError, StoreCorrupt) as error:  # no reason to leave all others alone
                _EXPIRY_LOG.warning("the workspace of session %s was not removed: %s", name, error)
        return removed

    async def _look_after(self, session_id: str) -> bool:
        tenant = (await self._log.store.records.get(SESSION_KIND, session_id)).tenant
        row = await self._log.session(session_id)
        if await self._log.store.pending(session_id, limit=1):
            return False  # somebody has written to it
        match await self._expiry.next_step(tenant, row):
            case "keep":
                return False
            case "tell":
                await self._expiry.tell(tenant, session_id)
                _EXPIRY_LOG.info("the workspace of session %s will be removed soon", session_id)
                return False
            case "remove":
                return await self._remove(tenant, row)

    async def _remove(self, tenant: str, row: SessionRow) -> bool:
        """While nobody can run the session.

        Raises: LeaseHeld: somebody does.
        """
        session_id = row.id
        writer = await self._log.hold(session_id, owner=_LEASE_OWNER, seconds=_LEASE_SECONDS)
        try:
            if (await self._log.session(session_id)).head.seq != row.head.seq:
                return False  # it was used just now
            await self._expiry.note_removal(tenant, session_id)
            await self._workspace_cleaner.remove_workspace(session_id)
        finally:
            await writer.release()
        _EXPIRY_LOG.info("the workspace of session %s was removed: nobody used it", session_id)
        return True


def _workspace_names(folder: Path) -> list[str]:
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    return [entry.name for entry in entries if entry.is_dir() and entry.name.startswith("sesn_")]
