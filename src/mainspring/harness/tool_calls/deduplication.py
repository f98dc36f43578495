"""Repeated tool calls return the stored result of the first one instead of running again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from mainspring.core.clock import Clock
from mainspring.core.content import Block
from mainspring.core.envelope import Event
from mainspring.core.events import AgentToolResult, AgentToolUse
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.define import Dedupe, FunctionTool

CALL_TYPES = ("agent.tool_use", "agent.tool_result")


def deduplicated(
    tool: Tool, read_calls: Callable[[], Awaitable[Sequence[Event]]], clock: Clock
) -> Tool:
    """The tool; if it was defined with `dedupe=`, it first looks for the result of an equal call.

    `read_calls`: the events of `CALL_TYPES` of the session.
    """
    dedupe = _dedupe_of(tool)
    if dedupe is None:
        return tool

    async def run(call: Call) -> ToolResult:
        oldest = None if dedupe.seconds is None else clock() - timedelta(seconds=dedupe.seconds)
        recent = [item for item in await read_calls() if oldest is None or item.time >= oldest]
        stored_result = _stored_result(call, dedupe, recent)
        return await tool.run(call) if stored_result is None else ToolResult(stored_result)

    return replace(tool, run=run)


def _dedupe_of(tool: Tool) -> Dedupe | None:
    return tool.dedupe if isinstance(tool, FunctionTool) else None


def _stored_result(call: Call, dedupe: Dedupe, events: Sequence[Event]) -> tuple[Block, ...] | None:
    """The result of the newest earlier call that is the same and succeeded."""
    results = {
        event.payload.tool_use_id: event.payload.content
        for event in events
        if isinstance(event.payload, AgentToolResult) and not event.payload.is_error
    }
    earlier_results = [
        results[event.id]
        for event in events
        if isinstance(event.payload, AgentToolUse)
        and event.payload.name == call.name
        and event.id != call.id
        and event.id in results
        and dedupe.same(event.payload.input, call.input)
    ]
    return earlier_results[-1] if earlier_results else None
