"""What each kind of node does. A node records its start before it has an effect, and its end with
its result; after a crash, what has no end continues where its session stopped."""

from __future__ import annotations

from dataclasses import replace

from mainspring.core.errors import InvalidInput, NotFound, ToolEnvironmentError
from mainspring.core.events import WorkflowNodeReset, WorkflowNodeStarted
from mainspring.runtime.workflows.format.definition import Node
from mainspring.runtime.workflows.format.references import fill_text, value_text
from mainspring.runtime.workflows.gates import GateAnswer, ask_gate, given_answer, rejected
from mainspring.runtime.workflows.iterations import run_group, run_loop
from mainspring.runtime.workflows.node_steps import run_agent, run_program
from mainspring.runtime.workflows.run_context import RunContext
from mainspring.runtime.workflows.run_scope import Scope
from mainspring.runtime.workflows.scheduler import GraphRun
from mainspring.runtime.workflows.step_runner import StepResult
from mainspring.runtime.workflows.subworkflows import run_child, run_included

_WAITING = StepResult(status="waiting")
_WITH_SESSION = frozenset(("command", "prompt", "bash", "script"))


async def run_node(context: RunContext, scope: Scope, node: Node) -> bool:
    """Run a node, with its retries, and record its end. Returns false if it waits."""
    path, retries = scope.path(node), 0
    while True:
        state = context.state.nodes.get(path)
        attempt = context.state.attempts(path) + 1 if state is None else state.attempt
        session_id = context.step_id(path, attempt)
        if state is None:
            context.steps += min(retries, 1)  # the graph has counted the first start
            await context.append(
                WorkflowNodeStarted(
                    workflow_run_id=context.state.id,
                    node=path,
                    kind=node.kind,
                    attempt=attempt,
                    session_id=session_id if node.kind in _WITH_SESSION else None,
                )
            )
        try:
            result = await _run_kind(context, scope, node, attempt)
        except (InvalidInput, NotFound, ToolEnvironmentError) as error:
            result = StepResult(status="failed", error=str(error))
        if result.status == "waiting":
            return False
        retry = node.retry
        if (
            result.status == "failed"
            and retry is not None
            and attempt <= retry.max_attempts
            and (result.is_transient or retry.on_error == "all")
        ):
            again = _reset(context, (path,), f"attempt {attempt} failed")
            await context.record(path, attempt, result, again, session_id=session_id)
            await context.runner.wait(retry.delay_ms * 2 ** (attempt - 1) / 1000)
            retries += 1
            continue
        await context.record(path, attempt, result)
        return True


def _reset(context: RunContext, paths: tuple[str, ...], reason: str) -> WorkflowNodeReset:
    return WorkflowNodeReset(workflow_run_id=context.state.id, nodes=paths, reason=reason)


async def _run_kind(context: RunContext, scope: Scope, node: Node, attempt: int) -> StepResult:
    if node.kind in ("prompt", "command"):
        return await run_agent(context, scope, node, attempt)
    if node.kind in ("bash", "script"):
        return await run_program(context, scope, node, attempt)
    return await _run_composite(context, scope, node)


async def _run_composite(context: RunContext, scope: Scope, node: Node) -> StepResult:
    match node.kind:
        case "loop":
            return await run_loop(context, scope, node)
        case "loop_group":
            return await run_group(context, scope, node, run_node)
        case "approval":
            return await _run_gate(context, scope, node)
        case "cancel":
            values = await context.value_reader(scope, node.text)
            scope.stop.reason = fill_text(node.text, values) or "cancelled"
            return StepResult(status="completed", output=scope.stop.reason)
        case "include":
            return await run_included(context, scope, node, run_node)
        case _:
            return await run_child(context, scope, node, run_node)


async def _run_gate(context: RunContext, scope: Scope, node: Node) -> StepResult:
    """Ask a person; after a rejection, rework, check again what that has changed, and ask again."""
    approval, path = node.approval, scope.path(node)
    if approval is None:
        raise InvalidInput(f"{node.id} has no approval")
    values = await context.value_reader(scope, approval.message)
    message = fill_text(approval.message, values)
    rework = approval.on_reject
    attempts = 0 if rework is None else rework.max_attempts
    for number in range(1, attempts + 2):
        state = context.state.nodes.get(f"{path}/rework/{number}")
        if state is None:
            answer = await ask_gate(
                context, scope, node, message, approval.choices, round_number=number
            )
            if answer is None:
                return _WAITING
            if not answer.is_denied or number > attempts:
                return _decided(scope, node, answer)
        else:
            answer = given_answer(context, scope, node, number)
        result = await _rework(context, scope, node, number, answer)
        if result.status != "completed":
            return result
        if not await _run_invalidated(context, scope, node):
            return _WAITING
    raise InvalidInput(f"{path} has no further round")


def _decided(scope: Scope, node: Node, answer: GateAnswer) -> StepResult:
    approval = node.approval
    decisions = approval.choices if approval is not None else ()
    fields = {"decision": answer.decision, "text": answer.text}
    if answer.is_denied:
        return rejected(scope, answer)
    if decisions:
        return StepResult(status="completed", output=value_text(fields), structured=fields)
    captured = answer.text if approval is not None and approval.capture_response else ""
    return StepResult(status="completed", output=captured, structured=fields)


async def _rework(
    context: RunContext, scope: Scope, node: Node, number: int, answer: GateAnswer
) -> StepResult:
    """Let an agent work on the objection, and run again what its edit has invalidated. After a
    crash, it continues."""
    path = f"{scope.path(node)}/rework/{number}"
    rework = node.approval.on_reject if node.approval is not None else None
    state = context.state.nodes.get(path)
    if rework is None or (state is not None and state.status == "completed"):
        return StepResult(status="completed")
    if state is not None and state.is_ended:
        return StepResult(status="failed", error=state.error or "the rework failed")
    session_id = context.step_id(path, 1)
    if state is None:
        context.steps += 1
        started = WorkflowNodeStarted(
            workflow_run_id=context.state.id, node=path, kind="prompt", session_id=session_id
        )
        await context.append(started)
    own = replace(scope, variables={**scope.variables, "REJECTION_REASON": answer.text})
    result = await run_agent(context, own, node, 1, text=rework.prompt, path=path)
    if result.status == "waiting":
        return result
    invalid: list[str] = []
    if result.status == "completed" and await context.runner.changed_files(session_id):
        invalid = await _invalidated(context, scope, node)
    names = tuple(scope.prefix + name for name in invalid)
    resets = [_reset(context, names, f"{path} changed files")] if names else []
    await context.record(path, 1, result, *resets)
    return result


async def _run_invalidated(context: RunContext, scope: Scope, gate: Node) -> bool:
    """Run what a rework has invalidated, or what a crash has left of it. Returns false if it
    waits."""
    states = context.state.nodes
    paths = {name: scope.prefix + name for name in _before(scope, gate)}
    left = frozenset(
        name for name, path in paths.items() if path not in states or not states[path].is_ended
    )
    return not left or await GraphRun(context, scope, run_node, left).run() == "done"


def _before(scope: Scope, gate: Node) -> list[str]:
    """The nodes of a graph that run before a gate."""
    nodes = {node.id: node for node in scope.nodes}
    before = list(dict.fromkeys(gate.depends_on))
    for name in before:
        before += [item for item in nodes[name].depends_on if item not in before]
    return before


async def _invalidated(context: RunContext, scope: Scope, gate: Node) -> list[str]:
    """The nodes before a gate whose results an edit makes stale: what ran after the last node that
    changed files. Without such a node, every program before the gate."""
    nodes, before = {node.id: node for node in scope.nodes}, _before(scope, gate)
    editors: set[str] = set()
    for name in before:
        path = scope.prefix + name
        sessions = [
            state.session_id
            for key, state in context.state.nodes.items()
            if (key == path or key.startswith(f"{path}/")) and state.session_id is not None
        ]
        for session_id in sessions:
            if nodes[name].kind not in ("bash", "script") and (
                await context.runner.changed_files(session_id)
            ):
                editors.add(name)
    if not editors:
        return [name for name in before if nodes[name].kind in ("bash", "script")]
    found = {name for name in before if editors.intersection(nodes[name].depends_on)} - editors
    while (
        more := {name for name in before if found.intersection(nodes[name].depends_on)}
        - found
        - editors
    ):
        found |= more
    return [name for name in before if name in found]
