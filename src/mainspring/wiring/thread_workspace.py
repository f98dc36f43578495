"""What the threads of a session share, and the folder and sandbox that one of them works in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.core.envelope import KnownPayload
from mainspring.core.facts import SandboxOpened
from mainspring.harness.permissions.policy import Policy, relocate_policy
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder.folder_instructions import PathInstructions
from mainspring.runtime.definition_files.settings_file import Preferences
from mainspring.runtime.session.toolbox import (
    SetupRequest,
)
from mainspring.wiring.pinned_policy import PinnedPolicy
from mainspring.wiring.run_options import RunOptions
from mainspring.wiring.sandbox_environment import (
    SandboxEnvironment,
    SessionPaths,
    thread_sandbox_id,
)
from mainspring.wiring.sandbox_pool import SandboxSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionShared:
    """What all threads of a session have in common."""

    options: RunOptions
    pinned_policy: PinnedPolicy
    sandbox_environment: SandboxEnvironment
    preferences: Preferences

    @property
    def policy(self) -> Policy:
        return self.pinned_policy.policy

    def moved(self, workspace: Path) -> SessionShared:
        """For work in a copy of the workspace: the same rules hold there."""
        policy = relocate_policy(self.policy, workspace.as_posix())
        return replace(
            self, pinned_policy=msgspec.structs.replace(self.pinned_policy, policy=policy)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadWorkspace:
    """A folder to work in, and hands there."""

    paths: SessionPaths
    sandbox: SandboxSession | None
    folder_workspace: FolderWorkspace
    path_instructions: PathInstructions


def needs_sandbox(agent: Agent) -> bool:
    """Whether it, or somebody whom it may call, works in a folder."""
    called = any(
        subagent.own is not None and subagent.own.built_ins for subagent in agent.subagents
    )
    return bool(agent.built_ins) or called


def sandbox_opened(
    setup: SetupRequest, paths: SessionPaths, sandbox: SandboxSession | None
) -> tuple[KnownPayload, ...]:
    """What the log has to know of the sandbox, whenever it is another than before."""
    if sandbox is None:
        return ()
    fact = SandboxOpened(
        backend=sandbox.box.backend,
        level=sandbox.box.isolation_level,
        flags_hash=sandbox.box.flags_hash,
        workspace=str(paths.workspace),
    )
    return () if setup.thread.session_state.sandbox == fact else (fact,)


def sandbox_key(setup: SetupRequest) -> str:
    """Whose hands they are: the session's, or a thread's that works apart."""
    session_id = setup.writer.session_id
    return session_id if setup.workspace is None else thread_sandbox_id(session_id, setup.thread.id)


def workspace_note(
    paths: SessionPaths, session_shared: SessionShared, sandbox: SandboxSession | None
) -> str:
    """What the model is told about where it works."""
    lines = [f"Your workspace is {paths.workspace}; you can touch nothing outside it."]
    if sandbox is None:
        lines.append("No commands can be run here: there is no sandbox.")
    elif session_shared.sandbox_environment.rules is None:
        lines.append("Commands run in a sandbox without any network.")
    else:
        lines.append("Commands run in a sandbox; its only way out is a proxy with a list of hosts.")
    return "\n".join((*lines, *session_shared.options.notes))
