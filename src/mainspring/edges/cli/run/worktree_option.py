"""`--worktree [NAME]`: runs a session in a separate git worktree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from mainspring.config import FOLDER, Settings
from mainspring.core import ids
from mainspring.edges.cli.render.printing import print_note
from mainspring.edges.cli.run.run_arguments import RunArguments
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session import Runtime
from mainspring.runtime.session.session_summary import workspace_of
from mainspring.wiring.worktrees import open_worktrees, shared_repository

_ID_DIGITS = 8  # characters of the session's id that end a generated name


async def open_worktree(settings: Settings, arguments: RunArguments) -> RunOptions:
    """The options of the run, with the worktree as its workspace. An existing worktree of the same
    name is used again.

    Raises:
        BadParameter: another option names the workspace.
        ToolEnvironmentError: there is no repository, or it has no commit.
    """
    options = arguments.options()
    if arguments.worktree is None:
        return options
    if arguments.session() is not None or options.workspace is not None:
        raise typer.BadParameter(
            "--worktree creates a workspace: do not combine it with --resume or --workspace"
        )
    folder, place = Path(settings.folder), _worktrees_folder(settings)
    name = arguments.worktree or f"session-{ids.new_id(ids.SESSION)[-_ID_DIGITS:]}"
    worktree = await open_worktrees(folder, place).open(name)
    print_note(settings, f"worktree {worktree.path}, branch {worktree.branch}")
    return replace(options, workspace=Path(worktree.path), agent=options.agent or folder)


def _worktrees_folder(settings: Settings) -> Path:
    return Path(settings.folder) / FOLDER / "worktrees"


async def share_repository(settings: Settings, runtime: Runtime, session_id: str | None) -> None:
    """Let programs read the repository of a worktree that `--worktree` created: git needs it.
    `session_id`: a session that continues in its workspace."""
    options = runtime.options
    recorded = None if session_id is None else await workspace_of(runtime.log, session_id)
    workspace = options.workspace if recorded is None else Path(recorded)
    if workspace is None or not _is_below(workspace, _worktrees_folder(settings)):
        return
    repository = await shared_repository(Path(settings.folder))
    sandbox = {**options.sandbox, "readOnly": [str(repository)]}
    runtime.options = replace(options, sandbox=sandbox)


def _is_below(folder: Path, place: Path) -> bool:
    return place.resolve() in folder.resolve().parents
