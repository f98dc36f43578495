"""The view of a trial that graders get: its log, its workspace, and a way to run programs on a
copy. The agent can no longer change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mainspring.core.events import EvalCheck
from mainspring.core.ports import ExecRequest, ExecResult
from mainspring.improve.evals.suite import Case
from mainspring.improve.evals.trajectory import TrajectoryLog


class RunProgram(Protocol):
    async def __call__(self, folder: Path, program: ExecRequest) -> ExecResult:
        """Run a program in a sandbox of its own over a folder, without network.

        Raises:
            SandboxFailed: this machine cannot isolate it; it was not run.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingContext:
    case: Case
    trajectory: TrajectoryLog
    seconds: float
    instructions: str
    """The agent's instructions, to find leaks."""
    suite_folder: Path
    workspace: Path | None
    scratch: Path
    """An empty folder for copies."""
    run_program: RunProgram
    key: str
    """The key of the trial: programs that have run under it are not run again."""
    last_request: str = ""
    """All text of the last model request, if a grader of the case needs it."""
    grader_number: int = 0
    """The number of the grader in its case: programs of two graders are run separately."""

    @property
    def answer(self) -> str:
        return self.trajectory.answer


def check(name: str, passed: bool, detail: str | Callable[[], str] = "") -> EvalCheck:
    """A check; its `detail` is dropped if it passed."""
    if passed:
        return EvalCheck(name=name, passed=True)
    text = detail if isinstance(detail, str) else detail()
    return EvalCheck(name=name, passed=False, detail=text[:_MAX_DETAIL])


_MAX_DETAIL = 600  # characters of a reason


def shorten(text: str, size: int = 200) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= size else f"{flat[:size]}..."
