"""Runs the nodes of a graph: each as soon as the nodes before it have ended, as its trigger rule
and its condition say. Everything that has ended is in the log, so nothing runs twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

import anyio

from mainspring.core.errors import InvalidInput
from mainspring.runtime.workflows.format.definition import Node, TriggerRule
from mainspring.runtime.workflows.format.references import condition_holds
from mainspring.runtime.workflows.run_context import RunContext
from mainspring.runtime.workflows.run_scope import Scope
from mainspring.runtime.workflows.step_runner import StepResult

GraphStatus: TypeAlias = Literal["done", "waiting"]
RunNode: TypeAlias = Callable[[RunContext, Scope, Node], Awaitable[bool]]
"""Runs a node to its end, which it records; false if it waits for a person."""


def may_run(rule: TriggerRule, statuses: Sequence[str]) -> bool:
    """Whether a node runs, by the ends of the nodes before it."""
    if not statuses:
        return True
    successes = statuses.count("completed")
    match rule:
        case "all_success":
            return successes == len(statuses)
        case "one_success":
            return successes > 0
        case "none_failed_min_one_success":
            return successes > 0 and "failed" not in statuses
        case "all_done":
            return True


_GATES = ("approval", "loop", "loop_group")
"""Nodes at which a person can end the workflow."""


class GraphRun:
    """One pass over a graph, until every node has ended or waits."""

    def __init__(
        self,
        context: RunContext,
        scope: Scope,
        run_node: RunNode,
        only: frozenset[str] | None = None,
    ) -> None:
        """`only`: the nodes to run; the others have ended."""
        self._context = context
        self._scope = scope
        self._run_node = run_node
        self._signal = anyio.Event()
        nodes = [node for node in scope.nodes if only is None or node.id in only]
        names = {node.id for node in nodes}
        self._left = {node.id: len(names.intersection(node.depends_on)) for node in nodes}
        self._behind: dict[str, list[Node]] = {}
        for node in nodes:
            for dependency in names.intersection(node.depends_on):
                self._behind.setdefault(dependency, []).append(node)
            self._note_stop(node)
        self._ready: deque[Node] = deque(node for node in nodes if not self._left[node.id])
        self._running = 0
        self._waiting: list[Node] = []

    async def run(self) -> GraphStatus:
        context = self._context
        async with anyio.create_task_group() as group:
            while True:
                signal = self._signal = anyio.Event()
                received = context.received
                await self._start_ready(group.start_soon)
                if not self._running:
                    break
                context.signals.add(signal)
                try:
                    await signal.wait()
                finally:
                    context.signals.discard(signal)
                if context.received > received:  # a person may have answered
                    self._ready.extend(self._waiting)
                    self._waiting.clear()
        if self._scope.stop.reason is not None:
            return "done"
        return "waiting" if self._waiting or self._ready else "done"

    def _note_stop(self, node: Node) -> None:
        """Before a crash, a node may have ended this graph."""
        state = self._context.state.nodes.get(self._scope.path(node))
        if state is None or not state.is_ended:
            return
        if node.kind == "cancel" and state.status == "completed":
            self._scope.stop.reason = state.output or "cancelled"
        elif node.kind in _GATES and state.status == "cancelled":
            self._scope.stop.reason = state.reason or "rejected"

    def _can_start(self) -> bool:
        context = self._context
        return (
            context.stop_reason is None
            and self._scope.stop.reason is None
            and context.over_limit is None
            and not context.state.is_paused_by_user
        )

    async def _start_ready(self, start_soon: Callable[..., object]) -> None:
        while self._ready and self._can_start():
            node = self._ready.popleft()
            path = self._scope.path(node)
            state = self._context.state.nodes.get(path)
            if state is not None and state.is_ended:
                self._release(node)
                continue
            if (problem := self._context.budget_problem()) is not None and state is None:
                self._context.over_limit = problem
                self._ready.appendleft(node)
                return
            if state is None and (ended := await self._decline(node)) is not None:
                await ended
                self._release(node)
                continue
            self._running += 1
            self._context.steps += state is None  # before the next one is compared with the limit
            start_soon(self._run, node)

    async def _decline(self, node: Node) -> Awaitable[None] | None:
        """Record why a node does not run, if it does not."""
        context, scope = self._context, self._scope
        path = scope.path(node)
        before = [context.state.nodes[scope.prefix + name].status for name in node.depends_on]
        if not may_run(node.trigger_rule, before):
            reason = f"trigger_rule {node.trigger_rule}"
            return context.append(context.ended(path, "skipped", reason=reason))
        if node.when is None:
            return None
        try:
            holds = condition_holds(node.when, await context.value_reader(scope, node.when))
        except InvalidInput as error:
            failed = StepResult(status="failed", error=f"when: {error}")
            return context.record(path, 1, failed)
        if holds:
            return None
        return context.append(context.ended(path, "skipped", reason="when"))

    async def _run(self, node: Node) -> None:
        try:
            has_ended = await self._run_node(self._context, self._scope, node)
        finally:
            self._running -= 1
            self._signal.set()
        if has_ended:
            self._release(node)
        else:
            self._waiting.append(node)

    def _release(self, node: Node) -> None:
        """The nodes behind an ended node may be ready now."""
        for other in self._behind.get(node.id, ()):
            self._left[other.id] -= 1
            if not self._left[other.id]:
                self._ready.append(other)


async def final_output(context: RunContext, scope: Scope, returns: str | None) -> StepResult:
    """The result of a graph: its `returns` node, else the first last node that has an output."""
    if scope.stop.reason is not None:
        return StepResult(status="cancelled", error=scope.stop.reason)
    states = context.state.nodes
    failed = [
        f"{node.id}: {state.error}"
        for node in scope.nodes
        if (state := states.get(scope.path(node))) is not None and state.status == "failed"
    ]
    completed = [
        node
        for node in scope.nodes
        if (state := states.get(scope.path(node))) is not None and state.status == "completed"
    ]
    if failed:
        return StepResult(status="failed", error="; ".join(failed))
    if not completed:
        return StepResult(status="failed", error="no node has run")
    has_dependents = {name for node in scope.nodes for name in node.depends_on}
    last = [
        node
        for node in completed
        if (node.id == returns if returns else node.id not in has_dependents)
    ]
    for node in last:
        state = states[scope.path(node)]
        if returns or state.output.strip():
            output = await context.whole_output(scope.path(node))
            return StepResult(status="completed", output=output, structured=state.structured)
    return StepResult(status="completed")
