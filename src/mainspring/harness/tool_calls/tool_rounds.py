"""The tool calls of one turn: which run concurrently, which run alone, which wait. Results keep
the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio

from mainspring.core import events
from mainspring.core.tool import ToolResult
from mainspring.harness import hook_events
from mainspring.harness.budget import calls_over
from mainspring.harness.run_inbox import until_interrupted
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.stop_reasons import Continue, Ended, Step
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.tool_calls.effect_snapshots import snapshot_before_effects, take_snapshot
from mainspring.harness.tool_calls.program_calls import ProgramCalls
from mainspring.harness.tool_calls.tool_call import (
    AnsweredCall,
    CallPlan,
    PendingCall,
    ReadyCall,
    idempotency_key,
)
from mainspring.harness.tool_calls.tool_pipeline import (
    EARLIER_CALL_FAILED,
    ToolRound,
    execute,
    prepare,
    settle,
    suspend,
)
from mainspring.log.task_groups import unwrap_single_error

ASKS_AGAIN = "Not done: the tool repeats a question that was already answered."
TOO_MANY_CALLS = "Not done: the limit on tool calls is reached. Finish with what you have."


async def run_round(context: ThreadContext) -> Step | None:
    """Settle as many calls of the newest reply as possible."""
    call_ids = list(context.thread.round)
    allowed = call_ids[: len(call_ids) - calls_over(context.tiers)]
    work = ToolRound()
    waiting: list[OpenCall] = []
    is_interrupted = False
    for group in _groups(context):
        plans = [
            await _plan_call(context, work, call, allowed, is_behind=bool(waiting))
            for call in group
        ]
        ready = _before_first_waiting([PendingCall(call) for call in waiting] + plans)
        waiting += [plan.call for plan in plans if isinstance(plan, PendingCall)]
        if ready and any(not item.traits.read_only for item in ready):
            await snapshot_before_effects(context)
        if ready and await _run_group(context, work, ready):
            is_interrupted = True
            break
        waits = work.suspended.union(work.waits)
        waiting += [item.call for item in ready if item.call.id in waits]
    if _has_effects(context):
        await take_snapshot(context)
    if is_interrupted:
        return None  # the loop handles the interrupt and settles the open calls
    return await _after_round(context, work, waiting)


async def _plan_call(
    context: ThreadContext,
    work: ToolRound,
    call: OpenCall,
    allowed: Sequence[str],
    *,
    is_behind: bool,
) -> CallPlan:
    if call.id in allowed or call.started:
        plan = await prepare(context, work, call, is_behind=is_behind)
    else:
        plan = AnsweredCall(call, ToolResult.text(TOO_MANY_CALLS, ok=False, error="denied"))
    if isinstance(plan, AnsweredCall):
        settle(context, plan.call, plan.tool_result)
    return plan


def _groups(context: ThreadContext) -> list[list[OpenCall]]:
    """Adjacent calls that may run concurrently form one group; any other call is alone."""
    groups: list[list[OpenCall]] = []
    was_safe = False
    for call in context.thread.unsettled_calls():
        tool = context.toolbox.find(call.name) if call.kind == "tool" else None
        is_safe = (
            tool is None  # it will not run; nor will one with invalid input
            or bool(tool.invalid(call.input))
            or tool.traits(call.input).concurrent
        )
        if is_safe and was_safe:
            groups[-1].append(call)
        else:
            groups.append([call])
        was_safe = is_safe
    return groups


def _before_first_waiting(call_plans: Sequence[CallPlan]) -> list[ReadyCall]:
    """The calls that may run now: no call overtakes one that waits."""
    ready: list[ReadyCall] = []
    for plan in call_plans:
        if isinstance(plan, PendingCall):
            break
        if isinstance(plan, ReadyCall):
            ready.append(plan)
    return ready


async def _after_round(
    context: ThreadContext, work: ToolRound, waiting: Sequence[OpenCall]
) -> Step:
    if waiting:
        own = [call for call in waiting if call.id not in work.waits]
        if asking := [call.name for call in own if call.kind == "tool"]:
            await context.run_hooks(hook_events.waiting_for_permission(asking))
        below = [item for ids in work.waits.values() for item in ids]
        return Ended("requires_action", waiting_for=(*(call.id for call in own), *below))
    settled: list[dict[str, object]] = [
        {"tool_use_id": call.id, "tool_name": call.name, "tool_input": dict(call.input)}
        for call in context.thread.round.values()
    ]
    hook_result = await context.run_hooks(hook_events.after_batch(settled))
    stops = [*work.stops, *filter(None, [hook_result.stop])]
    if hook_result.blocked:
        stops.append(hook_result.reason or "a hook stopped the run")
    if stops:
        return Ended("hook_stopped", "; ".join(stops))
    return await context.toolbox.authorizer.after_round(context.thread) or Continue("next_turn")


def _has_effects(context: ThreadContext) -> bool:
    """Whether calls of this turn may have changed something, before or after a crash."""
    for call in context.thread.round.values():
        tool = context.toolbox.find(call.name)
        is_read = tool is not None and tool.traits(call.input).read_only
        if call.started is not None and not is_read:
            return True
    return False


async def _run_group(context: ThreadContext, work: ToolRound, group: Sequence[ReadyCall]) -> bool:
    """Run calls concurrently; True if an interrupt stopped those that can be stopped."""
    sandbox = context.toolbox.sandbox_info
    for ready in group:
        call = ready.call
        context.note(
            events.ToolCallStarted(
                tool_use_id=call.id,
                idempotency_key=call.started
                or idempotency_key(
                    context.writer.session_id, call.id, ready.tool.spec.name, call.input
                ),
                attempt=call.attempts + 1,
                sandbox=None if sandbox is None else sandbox.label,
            )
        )
    await context.event_sink.commit()
    calls = _ConcurrentCalls(context, work, group)
    unstoppable = [ready for ready in group if ready.traits.on_interrupt == "block"]
    stoppable = [ready for ready in group if ready.traits.on_interrupt == "cancel"]
    if not unstoppable:
        return await until_interrupted(context, partial(calls.run_all, stoppable))
    if not stoppable:
        await calls.run_all(unstoppable)
        return False
    is_interrupted = False
    with unwrap_single_error():
        async with anyio.create_task_group() as tasks:  # losing the lease stops them all
            tasks.start_soon(calls.run_all, unstoppable)
            is_interrupted = await until_interrupted(context, partial(calls.run_all, stoppable))
    return is_interrupted


class _ConcurrentCalls:
    """Calls that run at the same time, each settled as soon as it is done."""

    def __init__(self, context: ThreadContext, work: ToolRound, group: Sequence[ReadyCall]) -> None:
        self._context = context
        self._work = work
        self._group = group
        self._left = len(group)
        self._scopes = {ready.call.id: anyio.CancelScope() for ready in group}
        self._call_tool = ProgramCalls(context, work).call_tool

    async def run_all(self, calls: Sequence[ReadyCall]) -> None:
        if len(calls) == 1:
            return await self._run(calls[0])
        with unwrap_single_error():
            async with anyio.create_task_group() as tasks:
                for ready in calls:
                    tasks.start_soon(self._run, ready)

    async def _run(self, ready_call: ReadyCall) -> None:
        if len(self._group) == 1:  # no other call can fail and cancel this one
            outcome = await execute(self._context, self._work, ready_call, self._call_tool)
        else:
            outcome = ToolResult.text(
                EARLIER_CALL_FAILED.format(ready_call.call.name), ok=False, error="cancelled"
            )
            with self._scopes[ready_call.call.id]:
                outcome = await execute(self._context, self._work, ready_call, self._call_tool)
        if outcome.waits_for:
            self._work.waits[ready_call.call.id] = outcome.waits_for
        elif outcome.questions and suspend(self._context, ready_call.call, outcome.questions):
            self._work.suspended.add(ready_call.call.id)
        else:
            if outcome.questions:
                outcome = ToolResult.text(ASKS_AGAIN, ok=False, error="failed")
            settle(self._context, ready_call.call, outcome)
        if ready_call.traits.cascades and not outcome.ok:
            self._cancel_after(ready_call)
        self._left -= 1
        if self._left:
            await self._context.event_sink.commit()  # the next step commits the last one

    def _cancel_after(self, failed: ReadyCall) -> None:
        """The model requested later calls of the same tool assuming that this one succeeds."""
        at = self._group.index(failed)
        for ready in self._group[at + 1 :]:
            if ready.call.name == failed.call.name:
                self._scopes[ready.call.id].cancel()
