"""Git worktrees of a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mainspring.capabilities.git.untrusted_git import open_repository
from mainspring.capabilities.git.worktrees import GitWorktrees
from mainspring.capabilities.sandbox.backends.confined_process import run_confined
from mainspring.capabilities.sandbox.readonly_mounts import remove_folder
from mainspring.config import FOLDER
from mainspring.core.errors import ToolEnvironmentError


def open_worktrees(workspace: Path, place: Path) -> GitWorktrees:
    """Worktrees of a workspace, each in a folder below `place`."""
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


async def uncommitted(folder: Path, paths: Sequence[str]) -> list[str]:
    """Which of these files of a folder differ from the last commit; none outside a repository, and
    where git cannot be asked."""
    names = [str(folder / path) for path in paths]
    try:
        git = await open_repository(folder, run_confined)
        changed = await git.output_names(
            "diff", "HEAD", "--name-only", "-z", "--no-ext-diff", "--no-textconv", "--", *names
        )
        new = await git.output_names("ls-files", "--others", "-z", "--", *names)
    except ToolEnvironmentError:
        return []
    return sorted({*changed, *new})
