"""What the nodes of workflows need from implementations."""

from __future__ import annotations

from mainspring.capabilities.hooks.static_answers import static_answers
from mainspring.runtime.workflows.step_runner import StepPorts
from mainspring.wiring.worktrees import open_worktrees

STEP_PORTS = StepPorts(open_worktrees=open_worktrees, static_answers=static_answers)
