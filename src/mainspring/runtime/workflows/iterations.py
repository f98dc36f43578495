"""Loops and groups: the same work again until it is complete."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.core.events import WorkflowNodeStarted
from mainspring.runtime.definition_files.json_file import as_object
from mainspring.runtime.workflows.format.definition import Loop, Node
from mainspring.runtime.workflows.format.references import fill_text, parse_json
from mainspring.runtime.workflows.gates import GateAnswer, ask_gate, rejected
from mainspring.runtime.workflows.loops import is_signalled, unmet, without_signal
from mainspring.runtime.workflows.node_steps import run_agent, run_program
from mainspring.runtime.workflows.run_context import RunContext
from mainspring.runtime.workflows.run_scope import Scope
from mainspring.runtime.workflows.scheduler import GraphRun, RunNode, final_output
from mainspring.runtime.workflows.step_runner import StepResult

_WAITING = StepResult(status="waiting")


async def run_loop(context: RunContext, scope: Scope, node: Node) -> StepResult:
    """Conversations until one is complete. Unless the loop wants a fresh context, each continues
    the one before."""
    loop, path = _loop_of(node), scope.path(node)
    previous, said, session_id = "", "", None
    for number in range(1, loop.max_iterations + 1):
        own = _iteration(scope, node, number, previous, said)
        result = await _iterate(context, own, node, session_id)
        if result.status != "completed":
            return result
        session_id = None
        if not loop.fresh_context:
            session_id = context.step_id(f"{path}/{number}", 1)
        is_complete = await _is_complete(context, own, node, result, number)
        output = without_signal(result.output, loop.until)
        answer = await _ask_iteration(context, scope, node, number, is_complete=is_complete)
        if answer is None:
            return _WAITING
        if answer.is_denied:
            return rejected(scope, answer)
        if answer.decision == "approve":
            return _ended(result, output, f"complete after {number}")
        said = answer.text
        previous = output
    return StepResult(status="failed", error=unmet(loop))


async def _iterate(
    context: RunContext, scope: Scope, node: Node, continues: str | None
) -> StepResult:
    """One iteration of a loop: a node of its own in the log."""
    loop, path = _loop_of(node), scope.prefix.rstrip("/")
    state = context.state.nodes.get(path)
    if state is not None and state.is_ended:
        status = "completed" if state.status == "completed" else "failed"
        output = await context.whole_output(path)
        error = state.error or ""
        return StepResult(status=status, output=output, structured=state.structured, error=error)
    if (problem := context.budget_problem()) is not None:
        context.over_limit = problem
        return _WAITING
    text = loop.prompt if loop.prompt is not None else context.files.command(loop.command or "")
    session_id = context.step_id(path, 1)
    if state is None:
        context.steps += 1
        started = WorkflowNodeStarted(
            workflow_run_id=context.state.id, node=path, kind="prompt", session_id=session_id
        )
        await context.append(started)
    around = scope.outer or scope
    own = replace(around, variables=scope.variables)
    result = await run_agent(context, own, node, 1, text=text, path=path, continues=continues)
    if result.status != "waiting":
        await context.record(path, 1, result)
    return result


async def _is_complete(
    context: RunContext, scope: Scope, node: Node, result: StepResult, number: int
) -> bool:
    loop = _loop_of(node)
    if loop.until is not None and is_signalled(result.output, loop.until):
        return True
    if loop.until_field is not None:
        fields = as_object(result.structured or parse_json(result.output)) or {}
        if fields.get(loop.until_field) is True:
            return True
    if loop.until_bash is None:
        return False
    path = f"{scope.prefix}until"
    state = context.state.nodes.get(path)
    if state is None or not state.is_ended:
        if state is None:
            started = WorkflowNodeStarted(
                workflow_run_id=context.state.id,
                node=path,
                kind="bash",
                session_id=context.step_id(path, 1),
            )
            await context.append(started)
        check = await run_program(context, scope, node, 1, text=loop.until_bash, path=path)
        # a check that says no has not failed: its exit status is the answer
        answer = StepResult(status="completed", output=check.status)
        await context.record(path, 1, answer)
    return context.state.nodes[path].output == "completed"


async def _ask_iteration(
    context: RunContext, scope: Scope, node: Node, number: int, *, is_complete: bool
) -> GateAnswer | None:
    """Whether the loop ends (`approve`), and what a person says to the next iteration; `None`: it
    waits."""
    loop = _loop_of(node)
    if not loop.interactive or (is_complete and loop.signal_completes):
        return GateAnswer(decision="approve" if is_complete else "continue")
    message = loop.gate_message or ""
    values = await context.value_reader(scope, message)
    if is_complete:
        message = f"{message}\n(The agent says that it is complete.)"
    iteration = f"{node.id}/{number}"
    gate = Node(id=f"{iteration}/gate", kind="approval", depends_on=(iteration,))
    text = fill_text(message, values)
    return await ask_gate(context, scope, gate, text, ("approve", "continue"))


async def run_group(context: RunContext, scope: Scope, node: Node, run_node: RunNode) -> StepResult:
    """The nodes of a group, again and again until it is complete."""
    loop, path = _loop_of(node), scope.path(node)
    previous, said = "", ""
    for number in range(1, loop.max_iterations + 1):
        own = _iteration(scope, node, number, previous, said)
        before = f"{path}/{number - 1}/" if number > 1 else None
        own = replace(own, nodes=loop.nodes, previous=before)
        if await GraphRun(context, own, run_node).run() == "waiting":
            return _WAITING
        result = await final_output(context, own, None)
        if result.status != "completed":
            return result
        is_complete = await _is_complete(context, own, node, result, number)
        output = without_signal(result.output, loop.until)
        answer = await _ask_iteration(context, scope, node, number, is_complete=is_complete)
        if answer is None:
            return _WAITING
        if answer.is_denied:
            return rejected(scope, answer)
        if answer.decision == "approve":
            return _ended(result, output, f"complete after {number}")
        said = answer.text
        previous = output
    return StepResult(status="failed", error=unmet(loop))


def _iteration(scope: Scope, node: Node, number: int, previous: str, said: str) -> Scope:
    variables = {**scope.variables, "LOOP_PREV_OUTPUT": previous, "LOOP_USER_INPUT": said}
    prefix = f"{scope.path(node)}/{number}/"
    return replace(scope, prefix=prefix, nodes=(), variables=variables, outer=scope)


def _ended(result: StepResult, output: str, reason: str) -> StepResult:
    return msgspec.structs.replace(result, output=output, error=reason)


def _loop_of(node: Node) -> Loop:
    if node.loop is None:
        raise InvalidInput(f"{node.id} is not a loop")
    return node.loop
