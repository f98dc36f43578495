"""The interface between the engine of workflows and what runs its agents and programs: sessions in
a real run, stubs in a dry run, recordings in a test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from mainspring.core.events import HookRan
from mainspring.core.hook import HookEventName, HookResult
from mainspring.core.ports import Worktrees
from mainspring.log.writer import Writer
from mainspring.runtime.workflows.format.definition import Node, Workflow

StepStatus: TypeAlias = Literal["completed", "failed", "waiting", "cancelled"]


class AgentStep(Struct, frozen=True, kw_only=True):
    """A conversation of one node."""

    path: str
    node: Node
    workflow: Workflow
    """For the defaults of its nodes."""
    prompt: str
    session_id: str
    workspace: Path | None
    system_prompt: str | None = None
    continues: str | None = None
    """The session whose conversation it continues."""
    servers: tuple[str, ...] = ()
    """The MCP servers that the node declares."""


class ProgramStep(Struct, frozen=True, kw_only=True):
    """A program of one node. Values are in its environment, never in its text."""

    path: str
    command: str
    variables: dict[str, str]
    session_id: str
    workspace: Path | None
    timeout_ms: int | None = None
    is_own: bool = False
    """It is a program of the engine, not of the workflow."""


class StepResult(Struct, frozen=True, kw_only=True):
    status: StepStatus
    output: str = ""
    structured: object = None
    error: str = ""
    is_transient: bool = False
    """The same step may succeed later."""
    cost_usd: Decimal = Decimal(0)


StaticAnswers: TypeAlias = Callable[
    [Mapping[str, object]],
    Sequence[tuple[HookEventName, Callable[[Collection[str]], HookResult | None]]],
]
"""Reads the field `hooks` of a node: events, and what to answer for a subject with these names. No
answer allows a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPorts:
    """What the composition root provides to run nodes."""

    open_worktrees: Callable[[Path, Path], Worktrees | None]
    """Takes a workspace and the folder for its worktrees."""
    static_answers: StaticAnswers


class StepRunner(Protocol):
    async def run_agent(self, step: AgentStep) -> StepResult:
        """Run a conversation to its end, or continue it after a crash."""
        ...

    async def run_program(self, step: ProgramStep) -> StepResult:
        """Run a program once, even if this process dies meanwhile."""
        ...

    async def open_worktree(self, name: str, workspace: Path | None) -> Path:
        """A folder of its own for a part of the run; the existing one of that name, if any.

        Raises: ToolEnvironmentError: the workspace is not a repository.
        """
        ...

    async def prepare_folder(
        self, workspace: Path | None, name: str, before: str | None = None
    ) -> Path:
        """Create the folder in the workspace that holds the artifacts of a run. `before`: the name
        of the folder of the run that it was forked from, whose artifacts it gets."""
        ...

    async def wait(self, seconds: float) -> None:
        """Wait before a node is tried again."""
        ...

    async def notify(self, writer: Writer, message: str, kind: str) -> Sequence[HookRan]:
        """Run the runner's `Notification` hooks for a run, whose log `writer` writes."""
        ...

    async def changed_files(self, session_id: str) -> bool:
        """Whether a session has changed files of its workspace."""
        ...
