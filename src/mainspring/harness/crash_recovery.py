"""Crash recovery: the events that close the open model request and the open tool calls of a run
whose process died.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mainspring.core import facts as fact
from mainspring.core.envelope import KnownPayload
from mainspring.core.events import (
    AgentMcpToolResult,
    AgentToolResult,
    ModelRequestEnded,
    StatusIdle,
    Usage,
)
from mainspring.core.tool import InDoubtPolicy, ToolResult
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Ended, stop_reason

INTERRUPTED_TEXT = "Interrupted by the user before it finished; what it has done so far is unknown."
PolicyOf: TypeAlias = Callable[[OpenCall], InDoubtPolicy]
"""How a call is settled of which nobody knows whether it was done."""


def recovery_events(thread: Thread, policy_of: PolicyOf) -> list[KnownPayload]:
    return [*_close_request(thread), *_close_calls(thread, policy_of)]


def closing_events(thread: Thread) -> list[KnownPayload]:
    """What ends a thread that nobody runs any more, as if a user had interrupted it."""
    unanswered = ToolResult.text(INTERRUPTED_TEXT, ok=False, error="cancelled")
    ended = Ended("interrupted_tools" if thread.unsettled_calls() else "interrupted_streaming")
    return [
        *_close_request(thread),
        *(result_event(call, unanswered) for call in thread.unsettled_calls()),
        StatusIdle(stop_reason=stop_reason(ended), reason=ended.reason),
    ]


def result_event(call: OpenCall, tool_result: ToolResult) -> AgentToolResult | AgentMcpToolResult:
    """The one event that settles a call."""
    error = None if tool_result.ok else tool_result.error or "failed"
    content, is_error = tool_result.content, not tool_result.ok
    if call.name.startswith("mcp__"):
        return AgentMcpToolResult(
            mcp_tool_use_id=call.id, content=content, is_error=is_error, error=error
        )
    return AgentToolResult(tool_use_id=call.id, content=content, is_error=is_error, error=error)


def _close_request(thread: Thread) -> list[KnownPayload]:
    """A model call died with its process: what it cost is unknown, so all it might have counts."""
    closing: list[KnownPayload] = []
    if thread.open_request is not None:
        closing.append(
            ModelRequestEnded(
                model_request_start_id=thread.open_request,
                model_usage=_reserved_usage(thread),
                is_error=True,
                purpose=thread.open_purpose,
                stop_reason="abandoned",
            )
        )
    if thread.open_reservation is not None:
        reserved = thread.open_reservation
        closing.append(
            fact.BudgetSettled(reservation_id=reserved.reservation_id, cost_usd=reserved.cost_usd)
        )
    return closing


def _reserved_usage(thread: Thread) -> Usage:
    reserved = thread.open_reservation
    if reserved is None:
        return Usage()
    return Usage(input_tokens=reserved.input_tokens, output_tokens=reserved.output_tokens)


def _close_calls(thread: Thread, policy_of: PolicyOf) -> list[KnownPayload]:
    return [
        fact.ToolCallInDoubt(tool_use_id=call.id, policy=policy_of(call))
        for call in thread.unsettled_calls()
        if call.started and call.kind == "tool" and not call.in_doubt
    ]
