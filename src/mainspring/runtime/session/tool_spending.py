"""The use of tools: calls, failures, seconds in the sandbox, and the price of their calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from msgspec import Struct

from mainspring.core import events
from mainspring.core.envelope import Event, event_types
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow

_TYPES = event_types(
    events.AgentToolUse,
    events.AgentMcpToolUse,
    events.ToolCallStarted,
    events.AgentToolResult,
    events.AgentMcpToolResult,
)


class ToolBill(Struct, kw_only=True):
    tool: str
    calls: int = 0
    failed: int = 0
    sandbox_seconds: float = 0.0
    """The time between start and result of calls that ran in a sandbox."""
    cost_usd: Decimal = Decimal(0)


async def add_tool_calls(
    bills: dict[str, ToolBill],
    log: SessionLog,
    session: SessionRow,
    prices: Mapping[str, Decimal],
) -> None:
    """Add the calls of a session, without those that a fork inherits. `prices`: the price of one
    call, by tool."""
    log_events = await log.read(session.id, types=_TYPES)
    _fold(bills, (event for event in log_events if event.seq > session.parent_seq), prices)


def _fold(bills: dict[str, ToolBill], log: Iterable[Event], prices: Mapping[str, Decimal]) -> None:
    names: dict[str, str] = {}
    started: dict[str, Event] = {}
    for event in log:
        match event.payload:
            case events.AgentToolUse(name=name) | events.AgentMcpToolUse(name=name):
                names[event.id] = name
            case events.ToolCallStarted(tool_use_id=call_id):
                started[call_id] = event
            case (
                events.AgentToolResult(tool_use_id=call_id, is_error=is_error)
                | events.AgentMcpToolResult(mcp_tool_use_id=call_id, is_error=is_error)
            ) if call_id in started and call_id in names:
                bill = bills.setdefault(names[call_id], ToolBill(tool=names[call_id]))
                bill.calls += 1
                bill.failed += is_error
                bill.cost_usd += prices.get(bill.tool, Decimal(0))
                bill.sandbox_seconds += _sandbox_seconds(started.pop(call_id), event)
            case _:
                pass


def _sandbox_seconds(start: Event, end: Event) -> float:
    payload = start.payload
    is_sandboxed = isinstance(payload, events.ToolCallStarted) and payload.sandbox is not None
    return (end.time - start.time).total_seconds() if is_sandboxed else 0.0
