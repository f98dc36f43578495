"""One-line summaries of events. A payload without a specific summary is shown field by field."""

from __future__ import annotations

import re
from functools import singledispatch

import msgspec

from mainspring.core import events
from mainspring.core.envelope import Event, UnknownPayload, message_text
from mainspring.edges.cli.render.printing import sanitize_line

MAX_CHARS = 500
"""The maximum length of a summary; `--json` prints the whole payload."""

_ID = re.compile(r"\b([a-z]{4})_[0-9a-z]{16,24}([0-9a-z]{8})\b")


def summarize_event(event: Event) -> str:
    payload = event.payload
    if isinstance(payload, UnknownPayload):
        return truncate(event.body[: MAX_CHARS * 4].decode(errors="ignore"))
    return truncate(summarize_payload(payload))


def truncate(text: str) -> str:
    line = sanitize_line(text[: MAX_CHARS * 2])
    return line if len(line) <= MAX_CHARS else f"{line[: MAX_CHARS - 1]}…"


def short_id(identifier: str) -> str:
    """The end of an id; every command accepts it."""
    return identifier[-8:]


@singledispatch
def summarize_payload(payload: events.Payload) -> str:
    if text := message_text(payload):  # pyright: ignore[reportArgumentType] (every payload but Unknown comes here)
        return text
    return _fields_text(payload)


def _fields_text(payload: events.Payload) -> str:
    """`name=value` of all fields that are set, with short ids."""
    fields: dict[str, object] = msgspec.to_builtins(payload)
    text = " ".join(
        f"{name}={value if isinstance(value, str) else _json_text(value)}"
        for name, value in fields.items()
        if name != "type"
    )
    return _ID.sub(r"\1…\2", text)


def _arguments_text(values: dict[str, object]) -> str:
    return ", ".join(f"{name}={_json_text(value)}" for name, value in values.items())


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _permission_text(permission: events.Permission | None) -> str:
    return "" if permission in (None, "allow") else f"  [{permission}]"


@summarize_payload.register
def _(payload: events.AgentThinking) -> str:
    return payload.text


@summarize_payload.register
def _(payload: events.AgentToolUse) -> str:
    call = f"{payload.name}({_arguments_text(payload.input)})"
    return call + _permission_text(payload.evaluated_permission)


@summarize_payload.register
def _(payload: events.AgentMcpToolUse) -> str:
    call = f"{payload.mcp_server_name}/{payload.name}({_arguments_text(payload.input)})"
    return call + _permission_text(payload.evaluated_permission)


@summarize_payload.register
def _(payload: events.AgentCustomToolUse) -> str:
    return f"{payload.name}({_arguments_text(payload.input)})"


@summarize_payload.register(events.AgentToolResult)
@summarize_payload.register(events.AgentMcpToolResult)
@summarize_payload.register(events.UserToolResult)
@summarize_payload.register(events.UserCustomToolResult)
def _(
    payload: events.AgentToolResult
    | events.AgentMcpToolResult
    | events.UserToolResult
    | events.UserCustomToolResult,
) -> str:
    text = message_text(payload) or "(nothing to read)"
    return f"failed: {text}" if payload.is_error else text


@summarize_payload.register
def _(payload: events.UserToolConfirmation) -> str:
    reason = f": {payload.deny_message}" if payload.deny_message else ""
    return f"{payload.result} {short_id(payload.tool_use_id)}{reason}"


@summarize_payload.register
def _(payload: events.ApprovalRequested) -> str:
    return f"{payload.subject.type}: {payload.question}"


@summarize_payload.register
def _(payload: events.ApprovalAnswered) -> str:
    choice = f" {payload.choice}" if payload.choice else ""
    form = f" {_json_text(payload.form)}" if payload.form else ""
    return f"{payload.decision}{choice} {short_id(payload.approval_id)}{form}"


@summarize_payload.register
def _(payload: events.FeedbackGiven) -> str:
    reason = f": {payload.text}" if payload.text else ""
    return f"{payload.rating}  {payload.subject.type} {short_id(payload.subject.id)}{reason}"


@summarize_payload.register
def _(payload: events.ApprovalVoided) -> str:
    return f"{short_id(payload.approval_id)}: {payload.reason}"


@summarize_payload.register
def _(payload: events.UserDefineOutcome) -> str:
    return payload.description


@summarize_payload.register
def _(payload: events.ContextCompacted) -> str:
    span = "" if payload.first_seq is None else f"events {payload.first_seq}-{payload.last_seq}: "
    return span + (payload.summary or "")


@summarize_payload.register
def _(payload: events.StatusIdle) -> str:
    stop = payload.stop_reason.type
    return f"{stop} ({payload.reason})" if payload.reason else stop


@summarize_payload.register(events.SessionFailed)
@summarize_payload.register(events.WorkflowRunFailed)
def _(payload: events.SessionFailed | events.WorkflowRunFailed) -> str:
    error = payload.error
    return f"{error.type}: {error.message} ({error.retry_status.type})"


@summarize_payload.register
def _(payload: events.ModelRequestEnded) -> str:
    cost = f"  ${payload.cost_usd}" if payload.cost_usd else ""
    stop = f"  {payload.stop_reason}" if payload.stop_reason else ""
    return (
        ("failed  " if payload.is_error else "") + _tokens_text(payload.model_usage) + cost + stop
    )


@summarize_payload.register
def _(payload: events.SessionUsage) -> str:
    return _tokens_text(payload.usage)


def _tokens_text(usage: events.Usage) -> str:
    cached = usage.cache_read_input_tokens
    total = usage.input_tokens + usage.cache_creation_input_tokens + cached
    share = f" ({cached} cached)" if cached else ""
    return f"{total} in{share}, {usage.output_tokens} out"


@summarize_payload.register
def _(payload: events.OutcomeEvaluationEnded) -> str:
    return f"{payload.result}: {payload.explanation}"


@summarize_payload.register
def _(payload: events.SessionCreated) -> str:
    return "  ".join(part for part in (payload.title, agent_label(payload)) if part)


def agent_label(created: events.SessionCreated) -> str:
    if not created.agent_name:
        return ""
    version = f" {created.agent_version}" if created.agent_version else ""
    return f"agent {created.agent_name}{version}"


@summarize_payload.register
def _(payload: events.SessionImported) -> str:
    return f"from {payload.format} {payload.source_session_id}: {payload.path}"


@summarize_payload.register
def _(payload: events.SessionForked) -> str:
    origin = f"from {short_id(payload.parent_session_id)} at {payload.parent_seq}"
    return f"{payload.title}  {origin}" if payload.title else origin


@summarize_payload.register
def _(payload: events.SessionWoken) -> str:
    return f"by {payload.owner}, attempt {payload.attempt}"


@summarize_payload.register
def _(payload: events.ToolCallAuthorized) -> str:
    reason = payload.rule or payload.reason
    origin = f"{payload.gate}: {reason}" if reason else payload.gate
    return f"{payload.decision} {short_id(payload.tool_use_id)} ({origin})"
