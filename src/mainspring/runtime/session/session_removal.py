"""Removes the files of deleted sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from anyio import to_thread

from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.session_paths import SessionPaths, StateFolders
from mainspring.runtime.session.session_summary import SessionFootprint, unused_snapshots

_ANY_ID = "any"
"""A placeholder for the session id, where the folders do not depend on it."""


class FolderRemoval(Protocol):
    """Removes our own folders without following links. Blocks."""

    def remove_folder(self, folder: Path, name: str) -> bool:
        """Returns whether it was removed completely."""
        ...

    def remove_readonly_mount(self, session_id: str) -> None: ...

    def remove_sandbox_folders(self, folder: Path, session_id: str) -> None: ...

    def remove_transcripts(self, folder: Path, session_id: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRemoval:
    log: SessionLog
    folder: Path
    """The workspace of sessions whose log names none."""
    state_folders: StateFolders
    folders: FolderRemoval
    release_uid: Callable[[str], None]
    remove_worktrees: Callable[[Path, Path], Awaitable[None]]
    """Takes a workspace and the folder of its worktrees. Raises: ToolEnvironmentError."""
    forget_snapshots: Callable[[SessionPaths, Collection[str]], Awaitable[None]]
    """Raises: ToolEnvironmentError, InvalidInput."""

    async def remove_files(self, footprints: Collection[SessionFootprint]) -> None:
        """Remove the files of deleted sessions. Only the snapshots that they named are removed:
        another log may have others in the same place."""
        unneeded = await unused_snapshots(self.log, footprints)
        for footprint in footprints:
            session_id = footprint.session_id
            await to_thread.run_sync(self.folders.remove_readonly_mount, session_id)
            for paths in self._paths(footprint):
                await to_thread.run_sync(
                    self.folders.remove_sandbox_folders, paths.state.parent, session_id
                )
                await to_thread.run_sync(
                    self.folders.remove_transcripts, paths.transcripts, session_id
                )
                await self._remove_worktrees(paths, session_id)
                snapshots = footprint.snapshots & unneeded
                if snapshots and paths.snapshots.is_dir():
                    with suppress(
                        ToolEnvironmentError, InvalidInput
                    ):  # then they are left in place
                        await self.forget_snapshots(paths, snapshots)
            await to_thread.run_sync(self.release_uid, session_id)

    async def _remove_worktrees(self, paths: SessionPaths, session_id: str) -> None:
        place = paths.worktrees(session_id)
        if await to_thread.run_sync(place.is_dir):
            with suppress(ToolEnvironmentError):  # then a person has to remove them
                await self.remove_worktrees(paths.workspace, place)
                await to_thread.run_sync(self.folders.remove_folder, place.parent, session_id)

    def _paths(self, footprint: SessionFootprint) -> list[SessionPaths]:
        paths: list[SessionPaths] = []
        for workspace in sorted(footprint.workspaces or {str(self.folder)}):
            with suppress(InvalidInput):  # the folder no longer exists
                paths.append(self.state_folders.session_paths(Path(workspace), _ANY_ID))
        return paths
