"""What a session works with besides what its agent brings: built-in tools, the authorizer, a
sandbox, worktrees.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from mainspring.core.envelope import KnownPayload
from mainspring.core.model import ToolSpec
from mainspring.core.ports import SandboxInfo, Snapshots, Worktrees
from mainspring.core.tool import Tool
from mainspring.harness.authorizer import Authorizer
from mainspring.harness.permissions.policy import Mode
from mainspring.harness.state.thread import Thread
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.runtime.agent import Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRequest:
    """A session that is about to run, and needs its kit."""

    agent: Agent
    thread: Thread
    writer: Writer
    log: SessionLog
    mode: Mode | None = None
    """The strictest that may hold for it: a subagent is never freer than who has called it."""
    subagent: str | None = None
    """Its type, if it is not the main thread."""
    workspace: Path | None = None
    """Where it works, if not where the session does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    authorizer: Authorizer
    tools: Sequence[Tool] = ()
    client_tools: Sequence[ToolSpec] = ()
    denied: frozenset[str] = frozenset()
    """Names of the agent's own tools that the model is not told of."""
    deferred: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    sandbox_info: SandboxInfo | None = None
    snapshots: Snapshots | None = None
    environment: str = ""
    """What the model is told about where it works."""
    pending_facts: list[KnownPayload] = field(default_factory=list[KnownPayload])
    """What happens in the hands while a call runs; the log gets it with the call's result."""
    facts: Sequence[KnownPayload] = ()
    """What the log has to know before anything is done with it."""
    for_thread: ToolboxFactory | None = None
    """The same hands, rules and hooks for another thread of the session."""
    before_idle: Callable[[], Awaitable[None]] | None = None
    """What is done once a run has ended, before anybody can see that the session is idle."""
    worktrees: Worktrees | None = None
    """Folders of their own for threads that are to work apart."""


ToolboxFactory: TypeAlias = Callable[[SetupRequest], AbstractAsyncContextManager[Toolbox]]
"""Gets a kit ready, for as long as the session runs."""


def toolbox_without_tools(authorizer: Authorizer) -> ToolboxFactory:
    """Nothing but the gates: for agents whose tools their caller has chosen one by one."""

    @asynccontextmanager
    async def toolbox_factory(_setup: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        yield Toolbox(authorizer=authorizer)

    return toolbox_factory
