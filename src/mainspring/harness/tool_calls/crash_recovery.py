"""Crash recovery: what happens to the open model request and the open tool calls of a run whose
process died. Everything that decides about a call with an unknown result is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mainspring.core import events
from mainspring.core.tool import InDoubtPolicy, ToolResult
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Ended, stop_reason
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.tool_calls.tool_call import (
    AnsweredCall,
    CallPlan,
    PendingCall,
    ReadyCall,
    attempt_of,
    refuse_call,
)
from mainspring.harness.toolbox import Toolbox

# A replay compares requests with these texts, so changing one breaks the replay of old logs.
INTERRUPTED_TEXT = "Interrupted by the user before it finished; what it has done so far is unknown."
IN_DOUBT_TEXT = (
    "The system stopped while this call ran. Whether it took effect is not known: look before you"
    " do it again."
)
FORKED_CALL_TEXT = (
    "This call was under way in the session that this one was forked from; what came of it is not"
    " known here."
)
CALL_ENDED = "the call that asked has ended"
PolicyOf: TypeAlias = Callable[[OpenCall], InDoubtPolicy]
"""How to settle a call that started and whose result is unknown."""


def in_doubt_policy(toolbox: Toolbox, call: OpenCall) -> InDoubtPolicy:
    tool = toolbox.find(call.name)
    return "report" if tool is None else tool.traits(call.input).in_doubt


async def plan_interrupted_call(context: ThreadContext, call: OpenCall) -> CallPlan:
    """What to do with a call that started in an earlier process, or before a fork."""
    tool = None if call.is_foreign else context.toolbox.find(call.name)
    if tool is None:
        text = FORKED_CALL_TEXT if call.is_foreign else IN_DOUBT_TEXT
        return refuse_call(call, text, "in_doubt")
    traits = tool.traits(call.input)
    if call.is_suspended:  # it asked and stopped by itself: nothing is in doubt
        return PendingCall(call) if call.open_approval else ReadyCall(call, tool, traits)
    policy = call.in_doubt or traits.in_doubt
    if policy == "probe" and tool.probe is not None:
        result = await tool.probe(attempt_of(context, call))
        return ReadyCall(call, tool, traits) if result is None else AnsweredCall(call, result)
    if policy == "retry":
        return ReadyCall(call, tool, traits)
    if policy == "ask":
        if call.answer is None:
            return PendingCall(call)
        if call.answer.result == "allow":
            return ReadyCall(call, tool, traits)
    return refuse_call(call, IN_DOUBT_TEXT, "in_doubt")


def recovery_events(thread: Thread, policy_of: PolicyOf) -> list[events.KnownPayload]:
    """The events that let a new process continue the run."""
    return [*_close_request(thread), *_mark_calls_in_doubt(thread, policy_of)]


def closing_events(thread: Thread) -> list[events.KnownPayload]:
    """The events that end a thread that will not run again, as if a user had interrupted it."""
    unanswered = ToolResult.text(INTERRUPTED_TEXT, ok=False, error="cancelled")
    ended = Ended("interrupted_tools" if thread.unsettled_calls() else "interrupted_streaming")
    return [
        *_close_request(thread),
        *(
            event
            for call in thread.unsettled_calls()
            for event in (*voiding_events(call), result_event(call, unanswered))
        ),
        events.StatusIdle(stop_reason=stop_reason(ended), reason=ended.reason),
    ]


def result_event(
    call: OpenCall, tool_result: ToolResult
) -> events.AgentToolResult | events.AgentMcpToolResult:
    """The one event that settles a call."""
    error = None if tool_result.ok else tool_result.error or "failed"
    content, is_error = tool_result.content, not tool_result.ok
    if call.name.startswith("mcp__"):
        return events.AgentMcpToolResult(
            mcp_tool_use_id=call.id, content=content, is_error=is_error, error=error
        )
    return events.AgentToolResult(
        tool_use_id=call.id, content=content, is_error=is_error, error=error
    )


def voiding_events(call: OpenCall) -> list[events.KnownPayload]:
    """The events that close the open questions of a call that is settled."""
    return [
        events.ApprovalVoided(approval_id=item.id, reason=CALL_ENDED, tool_use_id=call.id)
        for item in call.approvals
        if item.is_open
    ]


def _close_request(thread: Thread) -> list[events.KnownPayload]:
    """The cost of a model call that died with its process is unknown, so its whole reservation
    counts; but not if no model had answered, and it waited."""
    closing: list[events.KnownPayload] = []
    if thread.open_request is not None:
        closing.append(
            events.ModelRequestEnded(
                model_request_start_id=thread.open_request,
                model_usage=_reserved_usage(thread),
                is_error=True,
                purpose=thread.open_purpose,
                stop_reason="abandoned",
            )
        )
    if thread.open_reservation is not None:
        reservation = thread.open_reservation
        closing.append(
            events.BudgetSettled(
                reservation_id=reservation.reservation_id,
                cost_usd="0" if thread.is_in_outage else reservation.cost_usd,
            )
        )
    return closing


def _reserved_usage(thread: Thread) -> events.Usage:
    reservation = thread.open_reservation
    if reservation is None or thread.is_in_outage:
        return events.Usage()
    return events.Usage(
        input_tokens=reservation.input_tokens, output_tokens=reservation.output_tokens
    )


def _mark_calls_in_doubt(thread: Thread, policy_of: PolicyOf) -> list[events.KnownPayload]:
    return [
        events.ToolCallInDoubt(tool_use_id=call.id, policy=policy_of(call))
        for call in thread.unsettled_calls()
        if call.started and call.kind == "tool" and not call.in_doubt and not call.is_suspended
    ]
