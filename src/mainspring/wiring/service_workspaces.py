"""Workspaces of the service's sessions: fill them, read the outputs that sessions hand over, and
remove what deleted sessions and expired workspaces leave.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.git.git_clone import GitCloner
from mainspring.capabilities.network.addresses import Resolver, resolve_allowed, system_resolver
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.sandbox.readonly_mounts import (
    remove_folder,
    remove_readonly_mount,
    remove_sandbox_folders,
    remove_transcripts,
)
from mainspring.capabilities.sandbox.session_uids import release_session_uid
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.served_files import ServedFiles
from mainspring.capabilities.workspace.session_outputs import (
    Output,
    OutputFile,
    list_outputs,
    read_output,
)
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import FOLDER, Settings
from mainspring.core import ids
from mainspring.core.errors import NotFound, StaleVersion
from mainspring.core.ports import Snapshots
from mainspring.log.records import Records
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.session_paths import SERVED_STATE_FOLDER
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.memory_stores.mounted_stores import mounted_memories_file
from mainspring.service.sessions.expired_workspaces import EXPIRED_SUFFIX
from mainspring.service.sessions.output_files import OutputFolder
from mainspring.service.sessions.resource_types import FileContent
from mainspring.service.sessions.session_mounts import ForkWorkspaces, Mounts, mounted_ids_file
from mainspring.service.sessions.session_skills import skills_folder
from mainspring.service.sessions.session_transfer import SessionExport, SessionImport
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.repository import SESSION_KIND
from mainspring.wiring.sandbox_environment import served_session_paths, session_paths
from mainspring.wiring.sandbox_pool import SandboxPool

_LOG = logging.getLogger("mainspring.workspaces")


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
        """Remove the files of the deleted session whose id is the job's key.

        Raises: StaleVersion: the session still exists; the job is tried again.
        """
        try:
            await self._records.get(SESSION_KIND, job.key)
        except NotFound:
            await self._sandboxes.discard(job.key)
            await to_thread.run_sync(self._remove, job.key)
        else:
            raise StaleVersion(f"session {job.key} is still being deleted")

    async def remove_workspace(self, session_id: str) -> None:
        """Of a session that stays: it may go on in a new one, with the same uid and transcripts.

        Raises: OSError.
        """
        await self._sandboxes.discard(session_id)
        await to_thread.run_sync(self._move_away, session_id)

    def _move_away(self, session_id: str) -> None:
        """In one step, so that no run finds half a workspace if this process dies."""
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
        else:  # no other session may get its uid while it has files there
            _LOG.warning("the workspace of session %s could not be removed whole", session_id)

    def _remove_beside(self, session_id: str) -> None:
        workspace = Path(self._settings.workspaces) / session_id
        places = served_session_paths(self._settings, session_id)
        remove_folder(places.snapshots.parent, places.snapshots.name)
        remove_sandbox_folders(places.state.parent, session_id)
        remove_folder(places.worktrees(session_id).parent, session_id)
        remove_readonly_mount(session_id)
        mounted_ids_file(workspace).unlink(missing_ok=True)
        mounted_memories_file(workspace).unlink(missing_ok=True)
        remove_folder(workspace.parent, skills_folder(workspace).name)


def remove_expired(folder: Path, name: str) -> None:
    """Remove a workspace that was moved away; if this fails, the next sweep tries again."""
    if not remove_folder(folder, name):
        _LOG.warning("%s in %s could not be removed whole: remove it by hand", name, folder)


_FILES = ServedFiles(hidden=FOLDER, state=SERVED_STATE_FOLDER)


def open_mounts(
    file_content: Callable[[str, str], Awaitable[FileContent]], git_cloner: GitCloner
) -> Mounts:
    return Mounts(file_content=file_content, clone=git_cloner.clone, files=_FILES)


def open_git_cloner(
    networks: Sequence[Network] = (),
    *,
    max_bytes: int = 4 << 30,
    resolver: Resolver = system_resolver,
) -> GitCloner:
    """`networks`: private addresses that are allowed, too; then also over plain HTTP."""
    return GitCloner(
        resolve=partial(resolve_allowed, resolver=resolver, besides=networks),
        allow_http=bool(networks),
        max_bytes=max_bytes,
    )


def fork_workspaces(settings: Settings, log: SessionLog) -> ForkWorkspaces:
    def open_snapshots(workspace: Path, session_id: str, to: Path | None) -> Snapshots:
        paths = session_paths(settings, workspace, session_id)
        tree = FolderWorkspace(to or paths.workspace, hidden=paths.hidden)
        return WorkspaceSnapshots(tree, paths.snapshots)

    return ForkWorkspaces(log=log, files=_FILES, open_snapshots=open_snapshots)


def output_source(workspace: Path) -> OutputFolder:
    async def listed() -> list[OutputFile]:
        if not await to_thread.run_sync(workspace.is_dir):
            return []
        return await to_thread.run_sync(list_outputs, workspace)

    async def read(path: str, max_bytes: int) -> Output | str:
        reading = partial(read_output, workspace, path, max_bytes=max_bytes)
        output = await to_thread.run_sync(reading)
        return output if isinstance(output, Output) else output.reason

    return OutputFolder(list=listed, read=read)


def build_transfers(settings: Settings, sessions: Sessions) -> tuple[SessionExport, SessionImport]:
    workspaces = Path(settings.workspaces).resolve()
    folder = workspaces / SERVED_STATE_FOLDER / "transfers"

    def workspace(session_id: str) -> Path:
        return workspaces / session_id

    return (
        SessionExport(sessions, workspace=workspace, unseen=FOLDER, folder=folder),
        SessionImport(sessions, workspace=workspace, hidden=FOLDER, folder=folder),
    )
