"""Workflows within a run: included ones, and those that run as children, perhaps once for each item
of a list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import anyio
import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.runtime.workflows.format.definition import Node, Workflow
from mainspring.runtime.workflows.format.references import fill_text, parse_json
from mainspring.runtime.workflows.format.structure import node_texts
from mainspring.runtime.workflows.run_context import RunContext, run_folder_name
from mainspring.runtime.workflows.run_scope import Scope, Stop, bound_values
from mainspring.runtime.workflows.scheduler import GraphRun, RunNode, final_output
from mainspring.runtime.workflows.step_runner import StepResult

_WAITING = StepResult(status="waiting")
_MAX_ITEMS = 1000
"""Items of one fan-out: a longer list is more likely a mistake than a plan."""
_MAX_DEPTH = 8
"""How deeply workflows may contain workflows."""


def resolve_inputs(workflow: Workflow, values: Mapping[str, object]) -> dict[str, object]:
    """The inputs of a run: the given values, and defaults for the others.

    Raises: InvalidInput: one is unknown or missing.
    """
    if unknown := [name for name in values if name not in workflow.inputs]:
        known = ", ".join(workflow.inputs) or "none"
        raise InvalidInput(f"{workflow.name} has no input {unknown[0]}; known: {known}")
    inputs: dict[str, object] = {}
    for name, spec in workflow.inputs.items():
        if name in values:
            inputs[name] = values[name]
        elif spec.required:
            raise InvalidInput(f"{workflow.name} needs the input {name}")
        elif spec.has_default:
            inputs[name] = spec.default
    return inputs


async def run_included(
    context: RunContext, scope: Scope, node: Node, run_node: RunNode
) -> StepResult:
    """The nodes of another workflow as a part of this run."""
    values = await context.value_reader(scope, *map(str, node.bindings.values()))
    workflow = context.files.workflow(node.text)
    own = replace(
        _inner(scope, workflow, f"{scope.path(node)}/"),
        inputs=resolve_inputs(workflow, bound_values(scope, context.state, node, values)),
        stop=scope.stop,
    )
    if await GraphRun(context, own, run_node).run() == "waiting":
        return _WAITING
    return await final_output(context, own, workflow.returns)


async def run_child(context: RunContext, scope: Scope, node: Node, run_node: RunNode) -> StepResult:
    """Another workflow, once or for each item of a list."""
    values = await context.value_reader(scope, *(text for _, text in node_texts(node)))
    workflow, path = context.files.workflow(node.text), scope.path(node)
    given = bound_values(scope, context.state, node, values)
    arguments = scope.arguments if node.input is None else fill_text(node.input, values)
    if node.fan_out is None:
        child = replace(
            _inner(scope, workflow, f"{path}/"),
            inputs=resolve_inputs(workflow, given),
            arguments=arguments,
        )
        return await _run_one(context, child, node, run_node)
    items = parse_json(fill_text(node.fan_out.items, values))
    if not isinstance(items, list):
        return StepResult(status="failed", error="fan_out.items is not a JSON array")
    if len(cast("list[object]", items)) > _MAX_ITEMS:
        return StepResult(status="failed", error=f"fan_out.items has over {_MAX_ITEMS} items")
    children: list[Scope] = []
    for number, item in enumerate(cast("list[object]", items), 1):
        text = item if isinstance(item, str) else msgspec.json.encode(item).decode()
        name = node.fan_out.name
        inputs = given if name is None else {**given, name: item}
        child = replace(
            _inner(scope, workflow, f"{path}/{number}/"),
            inputs=resolve_inputs(workflow, inputs),
            arguments=text if name is None else arguments,
        )
        children.append(child)
    return await _run_all(context, children, node, run_node)


async def _run_all(
    context: RunContext, children: list[Scope], node: Node, run_node: RunNode
) -> StepResult:
    """All children of a fan-out; one that waits for a person does not stop the others."""
    fan_out = node.fan_out
    if fan_out is None:
        raise InvalidInput(f"{node.id} has no fan_out")
    results: dict[int, StepResult] = {}
    limiter = anyio.CapacityLimiter(fan_out.max_parallel)

    async def run(index: int) -> None:
        async with limiter:
            results[index] = await _run_one(context, children[index], node, run_node)

    async with anyio.create_task_group() as group:
        for index in range(len(children)):
            group.start_soon(run, index)
    if any(result.status == "waiting" for result in results.values()):
        return _WAITING
    ordered = [results[index] for index in range(len(children))]
    failed = [
        (number, item) for number, item in enumerate(ordered, 1) if item.status != "completed"
    ]
    if failed and fan_out.join == "all_success":
        number, first = failed[0]
        return StepResult(status="failed", error=f"child {number}: {first.error}")
    return StepResult(
        status="completed",
        output=msgspec.json.encode([_element(item) for item in ordered]).decode(),
    )


def _element(result: StepResult) -> object:
    """The result of a child in the array that a fan-out returns."""
    if result.status != "completed":
        return {"archon_failed": True, "error": result.error, "status": result.status}
    value = result.structured if result.structured is not None else parse_json(result.output)
    return result.output if value is None else value


async def _run_one(context: RunContext, child: Scope, node: Node, run_node: RunNode) -> StepResult:
    if node.isolation == "worktree" or child.workflow.uses_worktree:
        name = f"{run_folder_name(context.session_id)}-{child.prefix.strip('/').replace('/', '-')}"
        folder = await context.runner.open_worktree(name, child.workspace)
        await context.runner.prepare_folder(folder, run_folder_name(context.session_id))
        child = replace(child, workspace=folder)
    if await GraphRun(context, child, run_node).run() == "waiting":
        return _WAITING
    return await final_output(context, child, child.workflow.returns)


def _inner(scope: Scope, workflow: Workflow, prefix: str) -> Scope:
    if scope.depth >= _MAX_DEPTH:
        raise InvalidInput(f"{workflow.name} is over {_MAX_DEPTH} workflows deep")
    return Scope(
        prefix=prefix,
        nodes=workflow.nodes,
        workflow=workflow,
        inputs={},
        arguments=scope.arguments,
        workspace=scope.workspace,
        stop=Stop(),
        depth=scope.depth + 1,
        variables=scope.variables,
    )
