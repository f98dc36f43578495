"""The part of a thread's set-up that does not depend on how its tools run: its permission engine,
the fields and rules of its hooks, and facts about its workspace. `wiring` adds the sandbox and the
tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from anyio import to_thread

from mainspring.core import clock
from mainspring.core.events import KnownPayload, SandboxOpened
from mainspring.core.ports import SandboxInfo
from mainspring.core.tool import Traits
from mainspring.harness.permissions.call_analysis import analyze_call, location_after
from mainspring.harness.permissions.command_location import read_command_location
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Policy, PolicyRule
from mainspring.harness.permissions.protected_path_watcher import find_repositories
from mainspring.harness.permissions.rule import forbids, parse_rule
from mainspring.log.lru_cache import LruCache
from mainspring.runtime.agent_folder.folder_instructions import (
    PathInstructions,
    path_instructions,
    skills_for_path,
)
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.model_question import make_ask_model
from mainspring.runtime.session.session_paths import (
    SessionPaths,
    hide_denied_paths,
    thread_sandbox_id,
)
from mainspring.runtime.session_context import Models, SetupRequest

if TYPE_CHECKING:
    from mainspring.runtime.saved_environments import SavedEnvironment

MAX_CACHED = 1000
"""How many sessions and warnings are cached between runs."""
PathsNamedByGit: TypeAlias = Callable[
    [Path, Sequence[Path], Sequence[Path]], Awaitable[tuple[str, ...]]
]
"""Takes a workspace with its trees and bare repositories; returns the files in the workspace that
their configurations name. Raises: InvalidInput: one cannot be read."""


def permission_engine(
    setup: SetupRequest,
    policy: Policy,
    models: Models,
    *,
    sandbox: SandboxInfo | None = None,
    aliases: Collection[str] = (),
) -> PermissionEngine:
    """`aliases`: other names of the workspace's path."""
    location = read_command_location(policy, aliases)
    return PermissionEngine(
        thread=setup.thread,
        policy=policy,
        location=lambda: location,
        clock=clock.now,
        is_sandboxed=sandbox is not None and sandbox.isolation_level == "isolated",
        classifier=make_ask_model(models, setup.agent.model),
        ceiling=setup.mode,
        is_headless=setup.options.is_headless,
    )


def hook_fields(
    setup: SetupRequest, authorizer: PermissionEngine, transcript_path: Callable[[str], str]
) -> Mapping[str, object]:
    """The fields that every hook gets about its thread. `transcript_path`: by thread."""
    fields = {
        "session_id": setup.writer.session_id,
        "transcript_path": transcript_path(setup.writer.thread_id),
        "cwd": authorizer.policy.workspace,
        "permission_mode": authorizer.mode,
    }
    if setup.subagent is None:
        return fields
    thread_id = setup.thread.id
    return {
        **fields,
        "agent_id": thread_id,
        "agent_type": setup.subagent,
        "agent_transcript_path": transcript_path(thread_id),
    }


def matches_rule(
    authorizer: PermissionEngine, text: str, tool: str, tool_input: Mapping[str, object]
) -> bool:
    """Whether the text of a rule matches a call."""
    location = location_after(authorizer.thread.session_state.commands, authorizer.location())
    call = analyze_call(tool, tool_input, Traits(), location)
    roots = authorizer.policy.roots(PolicyRule(text=text, behavior="ask"))
    return forbids(parse_rule(text), call, roots, "ask")


def sandbox_key(setup: SetupRequest) -> str:
    """The id of the session's sandbox, or of a thread's own sandbox in a worktree."""
    session_id = setup.writer.session_id
    return session_id if setup.workspace is None else thread_sandbox_id(session_id, setup.thread.id)


def sandbox_opened(
    setup: SetupRequest, workspace: Path, sandbox: SandboxInfo | None
) -> tuple[KnownPayload, ...]:
    """The event for the log, if the last run had another sandbox."""
    if sandbox is None:
        return ()
    fact = SandboxOpened(
        backend=sandbox.backend,
        level=sandbox.isolation_level,
        flags_hash=sandbox.flags_hash,
        workspace=str(workspace),
    )
    return () if setup.thread.session_state.sandbox == fact else (fact,)


def workspace_note(
    setup: SetupRequest,
    workspace: Path,
    *,
    has_sandbox: bool,
    has_network: bool,
    saved: SavedEnvironment | None = None,
) -> str:
    """The note for the model about its environment."""
    lines = [f"Your workspace is {workspace}; you cannot access anything outside it."]
    if not has_sandbox:
        lines.append("No commands can be run here: there is no sandbox.")
    elif not has_network:
        lines.append("Commands run in a sandbox without any network.")
    else:
        lines.append("Commands run in a sandbox; its only way out is a proxy with a list of hosts.")
    if saved is not None:
        lines.append(saved.note)
    return "\n".join((*lines, *setup.options.notes))


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
