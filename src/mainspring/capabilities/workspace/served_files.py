"""Creates workspaces of the service's sessions, and writes files into them. Programs of a session
may be running, and may replace folders by links."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.path_traversal import resolve_path
from mainspring.capabilities.workspace.session_outputs import make_outputs
from mainspring.core.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFiles:
    hidden: str
    """The folder in a workspace that clients cannot access."""
    state: str
    """The folder beside the workspaces for the state of their sandboxes."""

    def make(self, workspace: Path) -> None:
        # other users may not list it, but a sandbox with its own uid must be able to enter
        workspace.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        make_private(workspace.parent / self.state)
        make_private(workspace)
        make_outputs(workspace)

    def make_empty(self, folder: Path) -> None:
        """Make a private folder; if it exists, its content is removed."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        make_private(folder)

    async def write(self, workspace: Path, path: str, content: bytes) -> None:
        """Raises: InvalidInput, ToolEnvironmentError."""
        await FolderWorkspace(workspace, hidden=(self.hidden,)).write(path, content)

    def move_into(self, workspace: Path, path: str, folder: Path) -> None:
        """Move a folder into the workspace. Raises: InvalidInput: the path already exists."""
        tree = FolderWorkspace(workspace, hidden=(self.hidden,))
        with resolve_path(tree.bounds, path, make_folders=True) as spot:
            if spot.state is not None:
                raise InvalidInput(f"{path} is there already")
            os.rename(folder, spot.name, dst_dir_fd=spot.folder)


def make_private(folder: Path) -> None:
    """Create a folder that other sessions' uids cannot enter, even if it is mounted by mistake;
    restrict one that an older version created."""
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        mode = os.fstat(descriptor).st_mode
        if mode & stat.S_IRWXO:  # the group is the session's own
            os.fchmod(descriptor, stat.S_IMODE(mode) & ~stat.S_IRWXO)
    finally:
        os.close(descriptor)
