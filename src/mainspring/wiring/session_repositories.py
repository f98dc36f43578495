"""Git for the sessions of this machine: repositories of a workspace, worktrees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.git.git_config import paths_named_by_git
from mainspring.capabilities.git.untrusted_git import open_repository
from mainspring.capabilities.git.worktrees import GitWorktrees
from mainspring.capabilities.sandbox.confined_process import run_confined
from mainspring.capabilities.sandbox.readonly_mounts import remove_folder
from mainspring.config import FOLDER
from mainspring.harness.permissions.protected_path_watcher import find_repositories
from mainspring.runtime.session.session_paths import SessionPaths


async def add_repositories(paths: SessionPaths, home: Path) -> SessionPaths:
    """Add the repositories of the workspace and the files that their configurations name.

    Raises: InvalidInput: a configuration cannot be read.
    """
    workspace = paths.workspace
    repositories = await to_thread.run_sync(find_repositories, workspace, paths.hidden)
    above = [parent for parent in workspace.parents if (parent / ".git").exists()]
    trees = [*above[:1], *(workspace / tree for tree in repositories.trees)]
    folders = [workspace / item for item in repositories.folders if not item.endswith(".git")]
    watched: tuple[str, ...] = ()
    if trees or folders:
        watched = await paths_named_by_git(
            workspace, trees, folders, home=home, run_program=run_confined
        )
    return replace(paths, git_repositories=repositories, watched=watched)


def open_worktrees(workspace: Path, place: Path) -> GitWorktrees:
    """Worktrees of a workspace, each in a folder of `place`."""
    return GitWorktrees(
        workspace,
        place,
        run_program=run_confined,
        remove_folder=remove_folder,
        private_folder=FOLDER,
    )


async def shared_repository(workspace: Path) -> Path:
    """The folder of the repository that all worktrees of a workspace share.

    Raises: ToolEnvironmentError.
    """
    return (await open_repository(workspace, run_confined)).common
