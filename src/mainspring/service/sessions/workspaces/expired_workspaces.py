"""Remove the workspaces of deleted sessions, and of sessions that have been unused for long."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from mainspring.core import ids
from mainspring.core.errors import (
    LeaseHeld,
    NotFound,
    SessionNotFound,
    StaleVersion,
    StoreCorrupt,
)
from mainspring.log.records import SESSION_KIND, Records
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.runtime.session.session_paths import StateFolders
from mainspring.runtime.session.session_removal import FolderRemoval
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.memory_stores.mounted_stores import mounted_memories_file
from mainspring.service.sessions.workspaces.session_mounts import mounted_ids_file
from mainspring.service.sessions.workspaces.session_skills import skills_folder
from mainspring.service.sessions.workspaces.workspace_expiry import WorkspaceExpiry

_LOG = logging.getLogger("mainspring.workspaces")
EXPIRED_SUFFIX = "-expired"
"""The suffix of the name of a workspace that is being removed."""
_LEASE_OWNER = "workspace_expiry"
_LEASE_SECONDS = 120.0  # to remove one workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceCleaner:
    records: Records
    state_folders: StateFolders
    folders: FolderRemoval
    release_uid: Callable[[str], None]
    discard_sandbox: Callable[[str], Awaitable[None]]

    async def clear(self, job: Job) -> None:
        """Remove the files of the deleted session whose id is the job's key.

        Raises: StaleVersion: the session still exists; the job is tried again.
        """
        try:
            await self.records.get(SESSION_KIND, job.key)
        except NotFound:
            await self.discard_sandbox(job.key)
            await to_thread.run_sync(self._remove, job.key)
        else:
            raise StaleVersion(f"session {job.key} is still being deleted")

    async def remove_workspace(self, session_id: str) -> None:
        """Remove the workspace of a session that stays: it may continue in a new one, with the same
        uid and transcripts.

        Raises: OSError.
        """
        await self.discard_sandbox(session_id)
        await to_thread.run_sync(self._move_away, session_id)

    def remove_expired(self, name: str) -> None:
        """Remove a workspace that was moved away; if this fails, the next sweep tries again.
        Blocks."""
        if not self.folders.remove_folder(self._workspaces, name):
            where = self._workspaces
            _LOG.warning(
                "%s in %s could not be removed completely; remove it manually", name, where
            )

    @property
    def _workspaces(self) -> Path:
        return self.state_folders.workspaces or Path()

    def _move_away(self, session_id: str) -> None:
        """Rename the workspace, then remove it, so that no run finds half of it if this process
        dies."""
        self._remove_beside(session_id)
        workspace = self._workspaces / session_id
        expired = workspace.with_name(ids.new_id(session_id) + EXPIRED_SUFFIX)
        workspace.rename(expired)
        self.remove_expired(expired.name)

    def _remove(self, session_id: str) -> None:
        self._remove_beside(session_id)
        paths = self.state_folders.served_paths(session_id)
        self.folders.remove_transcripts(paths.transcripts, session_id)
        if self.folders.remove_folder(self._workspaces, session_id):
            self.release_uid(session_id)
        else:  # no other session may get the uid of files that remain
            _LOG.warning("the workspace of session %s could not be removed completely", session_id)

    def _remove_beside(self, session_id: str) -> None:
        workspace, folders = self._workspaces / session_id, self.folders
        paths = self.state_folders.served_paths(session_id)
        folders.remove_folder(paths.snapshots.parent, paths.snapshots.name)
        folders.remove_sandbox_folders(paths.state.parent, session_id)
        folders.remove_folder(paths.worktrees(session_id).parent, session_id)
        folders.remove_readonly_mount(session_id)
        mounted_ids_file(workspace).unlink(missing_ok=True)
        mounted_memories_file(workspace).unlink(missing_ok=True)
        folders.remove_folder(workspace.parent, skills_folder(workspace).name)


@dataclass(frozen=True, slots=True)
class ExpiredWorkspaceSweeper:
    workspaces: Path
    log: SessionLog
    expiry: WorkspaceExpiry
    cleaner: WorkspaceCleaner

    async def sweep(self) -> int:
        """Announce workspaces that will be removed soon and remove those that are due; returns how
        many were removed."""
        removed = 0
        for name in await to_thread.run_sync(_workspace_names, self.workspaces):
            if name.endswith(EXPIRED_SUFFIX):  # its removal failed or was interrupted
                await to_thread.run_sync(self.cleaner.remove_expired, name)
                continue
            try:
                removed += await self._check(name)
            except (NotFound, SessionNotFound, LeaseHeld):
                continue
            except (OSError, StoreCorrupt) as error:  # check the others anyway
                _LOG.warning("the workspace of session %s was not removed: %s", name, error)
        return removed

    async def _check(self, session_id: str) -> bool:
        tenant = (await self.log.store.records.get(SESSION_KIND, session_id)).tenant
        row = await self.log.session(session_id)
        if await self.log.store.pending(session_id, limit=1):
            return False  # it has new messages
        match await self.expiry.next_step(tenant, row):
            case "keep":
                return False
            case "announce":
                await self.expiry.announce(tenant, session_id)
                _LOG.info("the workspace of session %s will be removed soon", session_id)
                return False
            case "remove":
                return await self._remove(tenant, row)

    async def _remove(self, tenant: str, row: SessionRow) -> bool:
        """Remove a workspace while holding the session's lease, so that no worker can run it.

        Raises: LeaseHeld: a worker runs it.
        """
        session_id = row.id
        writer = await self.log.hold(session_id, owner=_LEASE_OWNER, seconds=_LEASE_SECONDS)
        try:
            if (await self.log.session(session_id)).head.seq != row.head.seq:
                return False  # the session was used in the meantime
            await self.expiry.note_removal(tenant, session_id)
            await self.cleaner.remove_workspace(session_id)
        finally:
            await writer.release()
        _LOG.info("the workspace of session %s was removed because it was unused", session_id)
        return True


def _workspace_names(folder: Path) -> list[str]:
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    return [entry.name for entry in entries if entry.is_dir() and entry.name.startswith("sesn_")]
