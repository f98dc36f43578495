"""The interface between the engine of workflows and what runs its agents and programs: sessions in
a real run, stubs in a dry run, recordings in a test."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

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


class ProgramStep(Struct, frozen=True, kw_only=True):
    """A program of one node. Values are in its environment, never in its text."""

    path: str
    command: str
    variables: dict[str, str]
    session_id: str
    workspace: Path | None
    timeout_ms: int | None = None


class StepResult(Struct, frozen=True, kw_only=True):
    status: StepStatus
    output: str = ""
    structured: object = None
    error: str = ""
    is_transient: bool = False
    """The same step may succeed later."""
    cost_usd: Decimal = Decimal(0)


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

    async def changed_files(self, session_id: str) -> bool:
        """Whether a session has changed files of its workspace."""
        ...
