"""The second step of a thread's set-up: facts about its workspace that require a walk through it.
`runtime/session/session_paths.py` has the folders themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from mainspring.harness.permissions.policy import Policy
from mainspring.harness.permissions.protected_path_watcher import find_repositories
from mainspring.log.lru_cache import LruCache
from mainspring.runtime.agent_folder.folder_instructions import (
    PathInstructions,
    path_instructions,
    skills_for_path,
)
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.session.session_paths import (
    SessionPaths,
    hide_denied_paths,
    thread_sandbox_id,
)
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.thread_setup.ports import PathsNamedByGit

MAX_CACHED = 1000
"""How many sessions and warnings are cached between runs."""


def sandbox_key(setup: SetupRequest) -> str:
    """The id of the session's sandbox, or of a thread's own sandbox in a worktree."""
    session_id = setup.writer.session_id
    return session_id if setup.workspace is None else thread_sandbox_id(session_id, setup.thread.id)


class WorkspaceFacts:
    """Facts that require a walk through a workspace, cached between runs."""

    def __init__(self, home: Path, named_by_git: PathsNamedByGit) -> None:
        self._home = home
        self._named_by_git = named_by_git
        self._instructions: LruCache[str, PathInstructions] = LruCache(MAX_CACHED)
        self._without_denied: LruCache[tuple[SessionPaths, Policy], SessionPaths] = LruCache(
            MAX_CACHED
        )
        self._with_repositories: LruCache[SessionPaths, SessionPaths] = LruCache(MAX_CACHED)

    async def with_repositories(self, paths: SessionPaths) -> SessionPaths:
        """Add the repositories of the workspace and the files that their configurations name.

        Raises: InvalidInput: a configuration cannot be read.
        """
        if (cached := self._with_repositories.get(paths)) is not None:
            return cached
        workspace = paths.workspace
        repositories = await to_thread.run_sync(find_repositories, workspace, paths.hidden)
        parents_with_git = [parent for parent in workspace.parents if (parent / ".git").exists()]
        trees = [*parents_with_git[:1], *(workspace / tree for tree in repositories.trees)]
        folders = [workspace / item for item in repositories.folders if not item.endswith(".git")]
        watched: tuple[str, ...] = ()
        if trees or folders:
            watched = await self._named_by_git(workspace, trees, folders)
        complete = replace(paths, git_repositories=repositories, watched=watched)
        self._with_repositories.put(paths, complete)
        return complete

    async def without_denied(self, paths: SessionPaths, policy: Policy) -> SessionPaths:
        if (cached := self._without_denied.get((paths, policy))) is not None:
            return cached
        visible = await to_thread.run_sync(hide_denied_paths, paths, policy)
        self._without_denied.put((paths, policy), visible)
        return visible

    def path_instructions(
        self, setup: SetupRequest, paths: SessionPaths, policy: Policy
    ) -> PathInstructions:
        """The instructions for single files. The object is kept between runs, because it remembers
        what the model has seen."""
        key = sandbox_key(setup)
        if (cached := self._instructions.get(key)) is not None:
            return cached
        home = None if setup.options.is_served else self._home
        instructions = path_instructions(
            Scopes(folder=paths.workspace, home=home, managed=MANAGED),
            policy=policy,
            hidden=paths.hidden,
            also=[skills_for_path(setup.agent.skills)],
        )
        self._instructions.put(key, instructions)
        return instructions
