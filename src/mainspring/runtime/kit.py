"""What a session works with besides what its agent brings: built-in tools, gates, a sandbox."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from mainspring.core.envelope import KnownPayload
from mainspring.core.hands import Box, Snapshots
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Tool
from mainspring.harness.gates import Gates
from mainspring.harness.thread import Thread
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.runtime.agent import Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A session that is about to run, and needs its kit."""

    agent: Agent
    thread: Thread
    writer: Writer
    log: SessionLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    gates: Gates
    tools: Sequence[Tool] = ()
    client_tools: Sequence[ToolSpec] = ()
    denied: frozenset[str] = frozenset()
    """Names of the agent's own tools that the model is not told of."""
    deferred: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    box: Box | None = None
    snapshots: Snapshots | None = None
    environment: str = ""
    """What the model is told about where it works."""
    overheard: list[KnownPayload] = field(default_factory=list[KnownPayload])
    """What happens in the hands while a call runs; the log gets it with the call's result."""
    facts: Sequence[KnownPayload] = ()
    """What the log has to know before anything is done with it."""


Outfit: TypeAlias = Callable[[Opening], AbstractAsyncContextManager[Kit]]
"""Gets a kit ready, for as long as the session runs."""


def bare(gates: Gates) -> Outfit:
    """Nothing but the gates: for agents whose tools their caller has chosen one by one."""

    @asynccontextmanager
    async def outfit(_opening: Opening) -> AsyncGenerator[Kit, None]:
        yield Kit(gates=gates)

    return outfit
