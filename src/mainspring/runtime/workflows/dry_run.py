"""Dry runs and tests of workflows: the engine as in a real run, over outputs that are recorded or
made up. Nothing runs, no model is called, nobody is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal, cast

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.events import HookRan
from mainspring.core.sender import Sender
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.runtime.definition_files.json_file import as_object
from mainspring.runtime.workflows.engine import RunRequest, run_workflow, start_run
from mainspring.runtime.workflows.format.definition import Loop, all_nodes
from mainspring.runtime.workflows.format.references import find_references, value_text
from mainspring.runtime.workflows.node_agent import format_problem
from mainspring.runtime.workflows.run_context import RunLimits
from mainspring.runtime.workflows.run_control import GateReply, answer_gate
from mainspring.runtime.workflows.run_files import RunFiles
from mainspring.runtime.workflows.run_state import RunState, RunStatus
from mainspring.runtime.workflows.run_view import gate_views
from mainspring.runtime.workflows.step_runner import AgentStep, ProgramStep, StepResult

_DRY = Sender(kind="system", id="dry-run")
_MAX_ANSWERS = 1000  # of a dry run to its gates, so that a rejecting loop ends
_FAILED = "failed"
"""The key of a recorded output that is a failure, with its reason."""


class DryStep(Struct, frozen=True, kw_only=True):
    """A node, in the order in which they ended."""

    node: str
    kind: str
    status: str
    reason: str | None = None
    decision: str | None = None
    """Of a gate: how it was answered; a real run waits here."""
    estimated_usd: str | None = None
    """Of an agent: what its first request costs at least, by list price."""


class DryRun(Struct, frozen=True, kw_only=True):
    workflow: str
    status: RunStatus
    error: str | None
    steps: tuple[DryStep, ...]
    estimated_usd: str
    output: str = ""


@dataclass(slots=True, kw_only=True)
class DrySteps:
    """A `StepRunner` over outputs by the paths of nodes: `fix/2/check`, or `fix/check` for every
    iteration; a list has one output for each start."""

    files: RunFiles
    outputs: Mapping[str, object] = field(default_factory=dict[str, object])
    price: Callable[[AgentStep], Decimal] = lambda _: Decimal(0)
    costs: dict[str, Decimal] = field(default_factory=dict[str, Decimal])
    _starts: dict[str, int] = field(default_factory=dict[str, int])

    async def run_agent(self, step: AgentStep) -> StepResult:
        self.costs[step.path] = self.costs.get(step.path, Decimal(0)) + self.price(step)
        schema = step.node.output_format
        made_up: object = f"[output of {step.path}]" if schema is None else _example(schema)
        return self._result(step.path, _with_signal(step.node.loop, made_up), schema)

    async def run_program(self, step: ProgramStep) -> StepResult:
        if step.path.endswith("/evidence"):
            return StepResult(status="completed", output="[state of the workspace]")
        is_list = _names(step.path)[-1] in self._list_nodes()
        made_up = '["item 1", "item 2"]' if is_list else f"[output of {step.path}]"
        return self._result(step.path, made_up, None)

    async def open_worktree(self, name: str, workspace: Path | None) -> Path:
        return (workspace or Path()) / name

    async def prepare_folder(
        self, workspace: Path | None, name: str, before: str | None = None
    ) -> Path:
        return (workspace or Path()) / name

    async def wait(self, seconds: float) -> None:
        pass

    async def notify(self, writer: Writer, message: str, kind: str) -> Sequence[HookRan]:
        return ()

    async def changed_files(self, session_id: str) -> bool:
        return True

    def _result(self, path: str, made_up: object, schema: dict[str, object] | None) -> StepResult:
        output = self._recorded(path)
        value = made_up if output is None else output
        failure = as_object(value)
        if failure is not None and failure.keys() == {_FAILED}:
            return StepResult(status="failed", error=str(failure[_FAILED]))
        text = value_text(value)
        if schema is not None and (problem := format_problem(schema, text)) is not None:
            return StepResult(status="failed", error=f"output_format: {problem}")
        structured = None if schema is None else msgspec.json.decode(text)
        return StepResult(status="completed", output=text, structured=structured)

    def _recorded(self, path: str) -> object:
        name = path if path in self.outputs else "/".join(_names(path))
        output = self.outputs.get(name)
        if not isinstance(output, list):
            return output
        several = cast("list[object]", output)
        start = self._starts.get(name, 0)
        self._starts[name] = start + 1
        return several[min(start, len(several) - 1)] if several else None

    def _list_nodes(self) -> set[str]:
        """Nodes whose outputs are lists that other nodes go through."""
        return {
            reference.node
            for name in self.files.workflows
            for node in all_nodes(self.files.workflow(name).nodes)
            if node.fan_out is not None
            for _, _, reference in find_references(node.fan_out.items)
            if reference.node is not None
        }


async def dry_run(
    log: SessionLog,
    request: RunRequest,
    steps: DrySteps,
    *,
    gates: Mapping[str, object] | None = None,
    limits: RunLimits | None = None,
) -> DryRun:
    """Run a workflow in `log`, which is thrown away. `gates`: the decisions of gates, by node as
    outputs are; a list has one for each time that a gate asks. All others are approved.

    Raises: InvalidInput: the workflow, an input or a decision is not valid.
    """
    run_id, _ = await start_run(log, request, _DRY)
    decisions: dict[str, list[str]] = {}
    asked: dict[str, int] = {}
    for _ in range(_MAX_ANSWERS):
        state = await run_workflow(log, run_id, steps, limits=limits)
        waiting = gate_views(state, run_id)
        if state.has_ended or not waiting:
            return _summary(state, steps, decisions)
        for gate in waiting:
            key = gate.node if gate.node in (gates or {}) else "/".join(_names(gate.node))
            given = (gates or {}).get(key, "approve")
            several = cast("list[object]", given) if isinstance(given, list) else [given]
            count = asked[key] = asked.get(key, 0) + 1
            decision, _, text = str(several[min(count, len(several)) - 1]).partition(" ")
            decisions.setdefault(gate.node, []).append(decision)
            reply = GateReply(decision=decision, node=gate.node, text=text or None)
            await answer_gate(log, run_id, reply, _DRY)
    raise InvalidInput(f"gates were answered {_MAX_ANSWERS} times without an end")


def _summary(state: RunState, steps: DrySteps, decisions: Mapping[str, list[str]]) -> DryRun:
    ended = sorted(
        (node for node in (*state.earlier, *state.nodes.values()) if node.ended_at is not None),
        key=lambda node: node.end_seq,
    )
    shown = [
        DryStep(
            node=node.path,
            kind=node.kind or "skipped",
            status=node.status,
            reason=node.error or node.reason,
            decision=", ".join(decisions[node.path]) if node.path in decisions else None,
            estimated_usd=str(steps.costs[node.path]) if node.path in steps.costs else None,
        )
        for node in ended
    ]
    error = None if state.result is None else state.result.error
    return DryRun(
        workflow=state.created.name,
        status=state.status,
        error=None if error is None else error.message,
        steps=tuple(shown),
        estimated_usd=str(sum(steps.costs.values(), Decimal(0))),
        output=state.output,
    )


def _names(path: str) -> list[str]:
    """The nodes of a path, without the numbers of iterations and children."""
    first, *rest = path.split("/")
    return [first, *(part for part in rest if not part.isdecimal())]


def _with_signal(loop: Loop | None, made_up: object) -> object:
    if loop is None or loop.until is None or not isinstance(made_up, str):
        return made_up
    return f"{made_up} <promise>{loop.until}</promise>"


_EXAMPLES: Mapping[str, object] = {
    "boolean": True,
    "integer": 1,
    "number": 1,
    "array": [],
    "null": None,
}


def _example(schema: Mapping[str, object]) -> object:
    """A value that fits a JSON Schema, for the usual ones."""
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return cast("list[object]", choices)[0]
    properties = as_object(schema.get("properties"))
    if properties is not None or schema.get("type") == "object":
        return {name: _example(as_object(part) or {}) for name, part in (properties or {}).items()}
    return _EXAMPLES.get(str(schema.get("type")), "[text]")


class WorkflowTest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file in `workflows/tests/`: recorded outputs, and what must come out."""

    workflow: str
    arguments: str = ""
    inputs: dict[str, object] = {}
    outputs: dict[str, object] = {}
    """By node; `{failed: reason}` is a failure."""
    gates: dict[str, object] = {}
    """Decisions by node; `reject words` has a reason."""
    status: Literal["completed", "failed", "cancelled"] = "completed"
    nodes: dict[str, str] = {}
    """The statuses of these nodes."""
    order: tuple[str, ...] = ()
    """Nodes that end in this order; others may be between them."""


def problems_of(test: WorkflowTest, run: DryRun) -> list[str]:
    """How a dry run differs from what a test expects."""
    found: list[str] = []
    if run.status != test.status:
        found.append(f"it is {run.status}, not {test.status}: {run.error or 'no error'}")
    last = {step.node: step for step in run.steps}
    for name, status in test.nodes.items():
        step = last.get(name)
        actual = "not started" if step is None else step.status
        if actual != status:
            reason = "" if step is None or step.reason is None else f" ({step.reason})"
            found.append(f"{name} is {actual}{reason}, not {status}")
    names = iter(step.node for step in run.steps)
    late = next((name for name in test.order if name not in names), None)
    if late is not None:
        found.append(f"order: {late} does not end there")
    return found


def recorded_test(state: RunState) -> WorkflowTest:
    """A test from a run that has ended."""
    outputs: dict[str, object] = {}
    for node in state.nodes.values():
        if node.kind in ("prompt", "command", "bash", "script") and node.is_ended:
            value: object = node.output if node.structured is None else node.structured
            has_failed = node.status != "completed"
            if node.path.endswith("/until"):  # its exit status is its output
                has_failed = node.output != "completed"
            outputs[node.path] = {_FAILED: node.error} if has_failed else value
    status = state.status if state.has_ended else "completed"
    return WorkflowTest(
        workflow=state.created.name,
        arguments=state.created.arguments,
        inputs=state.created.inputs or {},
        outputs=outputs,
        status=cast("Literal['completed']", status),
        nodes={path: node.status for path, node in state.nodes.items() if "/" not in path},
    )
