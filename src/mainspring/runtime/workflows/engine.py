"""Starts and runs workflows. A run is a session; its log is the only state, so any process can
continue where another one stopped."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import anyio
from msgspec import Struct

from mainspring.core import ids
from mainspring.core.envelope import Event, event_types
from mainspring.core.errors import InvalidInput, SessionExists
from mainspring.core.events import (
    ErrorDetail,
    HookRan,
    SessionCreated,
    StatusIdle,
    StatusRunning,
    WorkflowPhase,
    WorkflowResult,
    WorkflowRunCreated,
    WorkflowRunEnded,
    WorkflowRunFailed,
    WorkflowRunIdle,
    WorkflowRunRunning,
)
from mainspring.core.events.session import RetryStatus, StopReason
from mainspring.core.sender import Origin, Sender
from mainspring.harness.event_sink import ignore_event
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.store import all_sessions
from mainspring.log.task_groups import run_in_background, unwrap_single_error
from mainspring.runtime.definition_files.json_file import as_object
from mainspring.runtime.workflows.node_kinds import run_node
from mainspring.runtime.workflows.run_context import (
    INLINE_CHARS,
    RunContext,
    RunLimits,
    run_folder_name,
)
from mainspring.runtime.workflows.run_files import RunFiles, decode_files, encode_files
from mainspring.runtime.workflows.run_scope import Scope
from mainspring.runtime.workflows.run_state import RunState, require_run
from mainspring.runtime.workflows.scheduler import GraphRun, final_output
from mainspring.runtime.workflows.step_runner import StepResult, StepRunner
from mainspring.runtime.workflows.subworkflows import resolve_inputs

RUN_AGENT = "workflow:"
"""The beginning of the agent's name in the session of a run."""
WorkflowEnding: TypeAlias = WorkflowRunFailed | WorkflowRunEnded
EVIDENCE_FILE = "evidence.json"
_BLOB_TYPE = "application/json"


class RunRequest(Struct, frozen=True, kw_only=True):
    """What a run is started with."""

    files: RunFiles
    arguments: str = ""
    inputs: dict[str, object] = {}
    run_key: str | None = None
    workspace: Path | None = None
    base_branch: str | None = None
    origin: Origin | None = None
    run_id: str | None = None
    """Its id, if the caller has chosen it."""


async def start_run(log: SessionLog, request: RunRequest, sender: Sender) -> tuple[str, bool]:
    """Create a run; returns its id, and whether it is new. The same run key gives the same run.

    Raises: InvalidInput: the workflow is not valid, or an input is unknown or missing.
    """
    workflow = request.files.workflow(request.files.main)
    inputs = resolve_inputs(workflow, request.inputs)
    key = request.run_key
    run_id = request.run_id or ids.new_id(ids.SESSION)
    if key is not None and request.run_id is None:
        run_id = ids.stable_id(ids.SESSION, "workflow", sender.id, workflow.name, key)
    created = SessionCreated(
        agent_name=f"{RUN_AGENT}{workflow.name}",
        title=f"workflow {workflow.name}",
        origin=request.origin or Origin(type="workflow", id=run_id),
        metadata={"workflow_run": run_id, "workflow": workflow.name},
    )
    is_new = True
    try:
        await log.create(created, session_id=run_id, sender=sender)
    except SessionExists:
        is_new = False
    async with hold_session(log, run_id) as writer:
        if not is_new and await log.read(run_id, types=["workflow_run.created"], limit=1):
            return run_id, False
        blob = await writer.put_blob(encode_files(request.files), media_type=_BLOB_TYPE)
        await writer.append(
            WorkflowRunCreated(
                workflow_run_id=run_id,
                name=workflow.name,
                description=workflow.description,
                phases=tuple(WorkflowPhase(id=node.id, name=node.id) for node in workflow.nodes),
                definition=blob.hash,
                file=request.files.files.get(f"workflow {workflow.name}"),
                arguments=request.arguments,
                inputs=inputs or None,
                run_key=key,
                workspace=None if request.workspace is None else str(request.workspace),
                base_branch=request.base_branch,
            )
        )
    return run_id, is_new


async def read_run(log: SessionLog, run_id: str) -> RunState:
    """Raises: SessionNotFound. InvalidInput: the session is not a run."""
    return require_run(await log.read(run_id), run_id)


async def all_runs(log: SessionLog) -> AsyncGenerator[tuple[str, RunState], None]:
    """All runs with the ids of their sessions, newest first."""
    async for row in all_sessions(log.store):
        if await log.read(row.id, types=event_types(WorkflowRunCreated), limit=1):
            yield row.id, await read_run(log, row.id)


async def run_files(log: SessionLog, state: RunState) -> RunFiles:
    """The files that a run uses, as they were when it started."""
    return decode_files(await log.blob(state.created.definition or ""))


async def run_workflow(
    log: SessionLog,
    run_id: str,
    runner: StepRunner,
    *,
    limits: RunLimits | None = None,
    on_event: Callable[[Event], None] = ignore_event,
) -> RunState:
    """Run a workflow until it ends or waits for a person. Safe to call after any crash, on any
    machine.

    Raises:
        LeaseHeld: another process runs it.
        SessionNotFound. InvalidInput: the session is not a run.
    """
    limits = limits or RunLimits()
    async with hold_session(log, run_id) as writer:
        state = require_run(await log.read(run_id), run_id)
        files = await run_files(log, state)
        created = state.created
        workspace = None if created.workspace is None else Path(created.workspace)
        name, parent = run_folder_name(run_id), (await log.session(run_id)).parent_id
        before = None if parent is None else run_folder_name(parent)
        folder = await runner.prepare_folder(workspace, name, before)
        context = RunContext(
            session_id=run_id,
            log=log,
            writer=writer,
            state=state,
            files=files,
            runner=runner,
            limits=limits,
            limiter=anyio.CapacityLimiter(limits.parallel),
            variables=_variables(created, run_id, folder),
            on_event=on_event,
            steps=len(state.nodes) + len(state.earlier),
        )
        workflow = files.workflow(files.main)
        await context.receive()
        if state.has_ended and not context.is_changed:
            return state
        await context.append(
            StatusRunning(), WorkflowRunRunning(workflow_run_id=created.workflow_run_id)
        )
        if workflow.uses_worktree:
            workspace = await runner.open_worktree(name, workspace)
            folder = await runner.prepare_folder(workspace, name, before)
            context.variables = _variables(created, run_id, folder)
        scope = Scope(
            prefix="",
            nodes=workflow.nodes,
            workflow=workflow,
            inputs=created.inputs or {},
            arguments=created.arguments,
            workspace=workspace,
        )
        await _run_to_end(context, scope, folder)
    return state


def _variables(created: WorkflowRunCreated, run_id: str, folder: Path) -> Mapping[str, str]:
    return {
        "ARTIFACTS_DIR": f"{folder}/artifacts",
        "STATE_DIR": f"{folder.parent}/state",
        "WORKFLOW_ID": run_id,
        "BASE_BRANCH": created.base_branch or "",
        "DOCS_DIR": "docs/",
    }


async def _run_to_end(context: RunContext, scope: Scope, folder: Path) -> None:
    status, before = "waiting", {item.id for item in context.state.open_approvals}
    while status == "waiting" and context.stop_reason is None:
        received = context.received
        status = await _run_graph(context, scope)
        await context.receive()
        if context.received == received:
            break
    run_id, name, output = context.state.id, scope.workflow.name, ""
    if context.over_limit is not None:
        is_steps = context.steps >= context.limits.max_steps
        kind = "thread_limit_error" if is_steps else "program_error"
        result = WorkflowResult(type="error", error=_error(context.over_limit, kind))
    elif context.stop_reason is not None:
        await _end_running(context, context.stop_reason)
        result = WorkflowResult(type="stopped", error=_error(context.stop_reason))
    elif status == "waiting":
        gates = [item for item in context.state.open_approvals if item.id not in before]
        hook_runs: list[HookRan] = []
        for gate in gates:
            message = f"workflow {name} waits for you: {gate.request.question}"
            hook_runs += await context.runner.notify(context.writer, message, "workflow_waiting")
        await context.append(*hook_runs, WorkflowRunIdle(workflow_run_id=run_id), _idle(context))
        return
    else:
        final = await final_output(context, scope, scope.workflow.returns)
        result = _result(final, scope, folder)
        output = final.output[:INLINE_CHARS] if result.type == "completed" else ""
    detail = "" if result.error is None else f": {result.error.message}"
    message = f"workflow {name} has ended ({result.type}){detail}"
    hook_runs = [*await context.runner.notify(context.writer, message, "workflow_ended")]
    await context.append(*hook_runs, *ending(run_id, result, output), _idle(context, result))


def ending(run_id: str, result: WorkflowResult, output: str) -> list[WorkflowEnding]:
    """The last events of a run."""
    ended = WorkflowRunEnded(workflow_run_id=run_id, result=result, output=output)
    if result.type != "error" or result.error is None:
        return [ended]
    return [WorkflowRunFailed(workflow_run_id=run_id, error=result.error), ended]


def _idle(context: RunContext, result: WorkflowResult | None = None) -> StatusIdle:
    """The status of the run as a session."""
    if result is not None:
        detail = None if result.error is None else result.error.message
        reason = "budget_reached" if context.over_limit is not None else "end_turn"
        return StatusIdle(stop_reason=StopReason(type=reason), reason=result.type, detail=detail)
    if context.state.is_paused_by_user:
        return StatusIdle(stop_reason=StopReason(type="end_turn"), reason="paused")
    return StatusIdle(stop_reason=StopReason(type="requires_action"), reason="requires_action")


async def _run_graph(context: RunContext, scope: Scope) -> str:
    """One pass over the whole graph; messages from the inbox reach it while it runs."""
    status = "waiting"
    cancel_scope = anyio.CancelScope()

    async def watch_inbox() -> None:
        watch = context.writer.watch_inbox()
        while True:
            await watch.wait()
            await context.receive()
            if context.stop_reason is not None:
                cancel_scope.cancel()

    with cancel_scope, unwrap_single_error():
        async with run_in_background(watch_inbox):
            status = await GraphRun(context, scope, run_node).run()
    return status


async def _end_running(context: RunContext, reason: str) -> None:
    running = [node for node in context.state.nodes.values() if not node.is_ended]
    for node in running:
        await context.append(context.ended(node.path, "cancelled", reason=reason))


def _result(result: StepResult, scope: Scope, folder: Path) -> WorkflowResult:
    if result.status == "cancelled":
        return WorkflowResult(type="stopped", error=_error(result.error))
    if result.status == "failed":
        return WorkflowResult(type="error", error=_error(result.error))
    workflow = scope.workflow
    if workflow.requires_evidence and not (folder / "artifacts" / EVIDENCE_FILE).is_file():
        missing = f"{EVIDENCE_FILE} is not among the artifacts, which evidence_policy requires"
        return WorkflowResult(type="error", error=_error(missing))
    fields = as_object(result.structured) or {}
    if workflow.outcome_field is not None and fields.get(workflow.outcome_field) is not True:
        return WorkflowResult(type="error", error=_error(f"{workflow.outcome_field} is not true"))
    return WorkflowResult(type="completed")


def _error(message: str, kind: str = "program_error") -> ErrorDetail:
    return ErrorDetail(type=kind, message=message, retry_status=RetryStatus(type="terminal"))


async def fork_run(
    log: SessionLog, run_id: str, node: str | None, sender: Sender, fork_id: str | None = None
) -> str:
    """A new run with the history of another one, up to the start of a node.

    Raises: SessionNotFound. InvalidInput: it is not a run, or the node has not started.
    """
    events = await log.read(run_id)
    require_run(events, run_id)
    at = None
    if node is not None:
        starts = [
            event.seq
            for event in events
            if getattr(event.payload, "node", None) == node
            and event.type == "workflow_run.node_started"
        ]
        if not starts:
            raise InvalidInput(f"{node} has not started in this run")
        at = starts[-1] - 1
    with suppress(SessionExists):
        row = await log.fork(run_id, at=at, fork_id=fork_id, sender=sender)
        return row.id
    return fork_id or run_id
