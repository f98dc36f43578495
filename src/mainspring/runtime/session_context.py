"""The set-up of a session: `SetupRequest` asks for a thread's toolbox; `SessionContext` is shared
by all threads of the session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

from mainspring.core.events import Usage
from mainspring.core.model import Model
from mainspring.core.model_facts import ModelFacts
from mainspring.harness.authorizer import Authorizer
from mainspring.harness.budget import Budget
from mainspring.harness.event_sink import EventSink
from mainspring.harness.permissions.policy import Mode
from mainspring.harness.state.thread import Thread
from mainspring.harness.toolbox import Toolbox
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions


class Models(Protocol):
    def open(self, name: str) -> Model: ...

    def connect_early(self, name: str) -> None:
        """Open a connection for the first request, if the model is reached over a network."""
        ...

    def put(self, name: str, model: Model) -> None: ...

    def resolve(self, name: str) -> str: ...

    def facts(self, name: str) -> ModelFacts: ...

    def cost(self, name: str, usage: Usage) -> Decimal: ...

    def related(self, wanted: str, to: str) -> str:
        """The model that `sonnet`, `small` or a full name means for an agent that uses the model
        `to`; `to` itself if that model is unavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRequest:
    """A thread that is about to run and needs its toolbox."""

    agent: Agent
    thread: Thread
    writer: Writer
    log: SessionLog
    mode: Mode | None = None
    """The most permissive mode it may have: a subagent is never less restricted than its parent."""
    subagent: str | None = None
    """Its subagent type; `None` for the main thread."""
    subagent_memory: str | None = None
    """The scope of a subagent's own memories: user, project or local."""
    workspace: Path | None = None
    """Its working folder, if that is not the session's."""
    options: RunOptions = field(default_factory=RunOptions)
    """The options of the run."""


ToolboxFactory: TypeAlias = Callable[[SetupRequest], AbstractAsyncContextManager[Toolbox]]
"""Opens the toolbox of a thread; it is closed when the thread stops running."""


def toolbox_without_tools(authorizer: Authorizer) -> ToolboxFactory:
    """For agents that have only their own tools."""

    @asynccontextmanager
    async def toolbox_factory(_request: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        yield Toolbox(authorizer=authorizer)

    return toolbox_factory


class SessionContext(Struct, frozen=True, kw_only=True):
    """What the threads of one running session share."""

    agent: Agent
    """The main thread's."""
    toolbox: Toolbox
    """The main thread's."""
    options: RunOptions
    log: SessionLog
    models: Models
    event_sink: EventSink
    budget: Budget
    deps: object = None
    """The value that the caller of the run passes to tools."""
