"""Workflow runs and their phases."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events.payload import Payload
from mainspring.core.events.session import ErrorDetail


class WorkflowPhase(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    name: str
    description: str | None = None


class WorkflowResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["completed", "error", "stopped"]
    error: ErrorDetail | None = None


class WorkflowRunCreated(Payload, frozen=True, kw_only=True, tag="workflow_run.created"):
    workflow_run_id: str
    name: str
    phases: tuple[WorkflowPhase, ...]
    description: str | None = None


class WorkflowRunRunning(Payload, frozen=True, kw_only=True, tag="workflow_run.status_running"):
    workflow_run_id: str


class WorkflowRunIdle(Payload, frozen=True, kw_only=True, tag="workflow_run.status_idle"):
    workflow_run_id: str


class WorkflowRunEnded(Payload, frozen=True, kw_only=True, tag="workflow_run.status_ended"):
    workflow_run_id: str
    result: WorkflowResult


class WorkflowRunFailed(Payload, frozen=True, kw_only=True, tag="workflow_run.error"):
    error: ErrorDetail
    workflow_run_id: str | None = None


class WorkflowPhaseStarted(Payload, frozen=True, kw_only=True, tag="workflow_run.phase_started"):
    workflow_run_id: str
    workflow_run_phase_id: str


class WorkflowPhaseEnded(Payload, frozen=True, kw_only=True, tag="workflow_run.phase_ended"):
    workflow_run_id: str
    workflow_run_phase_id: str
    phase_started_id: str


WorkflowPayload: TypeAlias = (
    WorkflowRunCreated
    | WorkflowRunRunning
    | WorkflowRunIdle
    | WorkflowRunEnded
    | WorkflowRunFailed
    | WorkflowPhaseStarted
    | WorkflowPhaseEnded
)
