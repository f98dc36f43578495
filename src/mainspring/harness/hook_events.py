"""The events that hooks receive, with their fields as Claude Code names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainspring.core.content import plain_text
from mainspring.core.events import CompactionRequested
from mainspring.core.hook import HookEvent, HookEventName
from mainspring.core.tool import Call, ToolResult


def _tool_event(event: HookEventName, call: Call, **extra_fields: str) -> HookEvent:
    fields = {"tool_name": call.name, "tool_input": dict(call.input), "tool_use_id": call.id}
    return HookEvent(
        event=event, subject=call.name, fields={**fields, **extra_fields}, tool_use_id=call.id
    )


def before_tool(call: Call) -> HookEvent:
    return _tool_event("PreToolUse", call)


def permission_requested(call: Call, reason: str | None) -> HookEvent:
    return _tool_event("PermissionRequest", call, reason=reason or "")


def permission_denied(call: Call, reason: str | None) -> HookEvent:
    return _tool_event("PermissionDenied", call, reason=reason or "")


def after_tool(call: Call, result: ToolResult) -> HookEvent:
    text = plain_text(result.content)
    if result.ok:
        return _tool_event("PostToolUse", call, tool_response=text)
    return _tool_event("PostToolUseFailure", call, error=text)


def after_batch(calls: Sequence[Mapping[str, object]]) -> HookEvent:
    return HookEvent(event="PostToolBatch", fields={"tool_calls": list(calls)})


def session_started(source: str, model: str) -> HookEvent:
    return HookEvent(
        event="SessionStart", subject=source, fields={"source": source, "model": model}
    )


def session_ended(reason: str) -> HookEvent:
    return HookEvent(event="SessionEnd", subject=reason, fields={"reason": reason})


def prompt_submitted(text: str) -> HookEvent:
    return HookEvent(event="UserPromptSubmit", fields={"prompt": text})


def waiting_for_permission(names: Sequence[str]) -> HookEvent:
    message = f"The agent needs your permission to use {', '.join(names)}"
    return notification(message, "permission_prompt")


def notification(message: str, kind: str) -> HookEvent:
    return HookEvent(
        event="Notification",
        subject=kind,
        fields={"message": message, "notification_type": kind},
    )


def stopping(*, is_again: bool, last_message: str, agent: str | None = None) -> HookEvent:
    """`agent`: the name of the subagent that wants to stop."""
    return HookEvent(
        event="Stop" if agent is None else "SubagentStop",
        subject=agent or "",
        fields={"stop_hook_active": is_again, "last_assistant_message": last_message},
    )


def subagent_started(agent: str) -> HookEvent:
    return HookEvent(event="SubagentStart", subject=agent)


def stop_failed(reason: str, detail: str | None) -> HookEvent:
    return HookEvent(
        event="StopFailure", subject=reason, fields={"error": reason, "error_details": detail or ""}
    )


def before_compact(request: CompactionRequested | None = None) -> HookEvent:
    trigger = "auto" if request is None else "manual"
    instructions = (request.instructions if request is not None else None) or ""
    return HookEvent(
        event="PreCompact",
        subject=trigger,
        fields={"trigger": trigger, "custom_instructions": instructions},
    )


def after_compact(request: CompactionRequested | None = None) -> HookEvent:
    trigger = "auto" if request is None else "manual"
    return HookEvent(event="PostCompact", subject=trigger, fields={"trigger": trigger})
