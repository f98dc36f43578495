"""An event in a few words. What has no words of its own here is shown field by field."""

from __future__ import annotations

import re
from functools import singledispatch

import msgspec

from mainspring.core import events, facts
from mainspring.core.envelope import Event, Unknown, message_text
from mainspring.edges.cli.printable import one_line

MOST = 500
"""Characters; `--json` has the whole."""

_ID = re.compile(r"\b([a-z]{4})_[0-9a-z]{16,24}([0-9a-z]{8})\b")


def gist(event: Event) -> str:
    payload = event.payload
    if isinstance(payload, Unknown):
        words = event.body[: MOST * 4].decode(errors="ignore")
    else:
        words = in_words(payload)
    return cut(words)


def cut(words: str) -> str:
    line = one_line(words[: MOST * 2])
    return line if len(line) <= MOST else f"{line[: MOST - 1]}…"


def short(identifier: str) -> str:
    """The end of an id: what tells it from others, and what every command understands."""
    return identifier[-8:]


@singledispatch
def in_words(payload: events.Payload) -> str:
    if text := message_text(payload):  # pyright: ignore[reportArgumentType] (every payload but Unknown comes here)
        return text
    return _fields(payload)


def _fields(payload: events.Payload) -> str:
    """`name=value` of all that is set, ids shortened."""
    known = msgspec.to_builtins(payload)
    shown = " ".join(f"{name}={_value(value)}" for name, value in known.items() if name != "type")
    return _ID.sub(r"\1…\2", shown)


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _arguments(values: dict[str, object]) -> str:
    return ", ".join(f"{name}={_json(value)}" for name, value in values.items())


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _permission(permission: events.Permission | None) -> str:
    return "" if permission in (None, "allow") else f"  [{permission}]"


@in_words.register
def _(payload: events.AgentThinking) -> str:
    return payload.text


@in_words.register
def _(payload: events.AgentToolUse) -> str:
    call = f"{payload.name}({_arguments(payload.input)})"
    return call + _permission(payload.evaluated_permission)


@in_words.register
def _(payload: events.AgentMcpToolUse) -> str:
    call = f"{payload.mcp_server_name}/{payload.name}({_arguments(payload.input)})"
    return call + _permission(payload.evaluated_permission)


@in_words.register
def _(payload: events.AgentCustomToolUse) -> str:
    return f"{payload.name}({_arguments(payload.input)})"


@in_words.register(events.AgentToolResult)
@in_words.register(events.AgentMcpToolResult)
@in_words.register(events.UserToolResult)
@in_words.register(events.UserCustomToolResult)
def _(
    payload: events.AgentToolResult
    | events.AgentMcpToolResult
    | events.UserToolResult
    | events.UserCustomToolResult,
) -> str:
    text = message_text(payload) or "(nothing to read)"
    return f"failed: {text}" if payload.is_error else text


@in_words.register
def _(payload: events.UserToolConfirmation) -> str:
    why = f": {payload.deny_message}" if payload.deny_message else ""
    return f"{payload.result} {short(payload.tool_use_id)}{why}"


@in_words.register
def _(payload: events.UserDefineOutcome) -> str:
    return payload.description


@in_words.register
def _(payload: events.ContextCompacted) -> str:
    span = "" if payload.first_seq is None else f"events {payload.first_seq}-{payload.last_seq}: "
    return span + (payload.summary or "")


@in_words.register
def _(payload: events.StatusIdle) -> str:
    stop = payload.stop_reason.type
    return f"{stop} ({payload.reason})" if payload.reason else stop


@in_words.register(events.SessionFailed)
@in_words.register(facts.WorkflowRunFailed)
def _(payload: events.SessionFailed | facts.WorkflowRunFailed) -> str:
    error = payload.error
    return f"{error.type}: {error.message} ({error.retry_status.type})"


@in_words.register
def _(payload: events.ModelRequestEnded) -> str:
    cost = f"  ${payload.cost_usd}" if payload.cost_usd else ""
    stop = f"  {payload.stop_reason}" if payload.stop_reason else ""
    return ("failed  " if payload.is_error else "") + _tokens(payload.model_usage) + cost + stop


@in_words.register
def _(payload: events.SessionUsage) -> str:
    return _tokens(payload.usage)


def _tokens(usage: events.Usage) -> str:
    cached = usage.cache_read_input_tokens
    total = usage.input_tokens + usage.cache_creation_input_tokens + cached
    share = f" ({cached} cached)" if cached else ""
    return f"{total} in{share}, {usage.output_tokens} out"


@in_words.register
def _(payload: events.OutcomeEvaluationEnded) -> str:
    return f"{payload.result}: {payload.explanation}"


@in_words.register
def _(payload: facts.SessionCreated) -> str:
    return "  ".join(part for part in (payload.title, agent(payload)) if part)


def agent(created: facts.SessionCreated) -> str:
    if not created.agent_name:
        return ""
    version = f" {created.agent_version}" if created.agent_version else ""
    return f"agent {created.agent_name}{version}"


@in_words.register
def _(payload: facts.SessionImported) -> str:
    return f"from {payload.format} {payload.source_session_id}: {payload.path}"


@in_words.register
def _(payload: facts.SessionForked) -> str:
    origin = f"from {short(payload.parent_session_id)} at {payload.parent_seq}"
    return f"{payload.title}  {origin}" if payload.title else origin


@in_words.register
def _(payload: facts.SessionWoken) -> str:
    return f"by {payload.owner}, attempt {payload.attempt}"


@in_words.register
def _(payload: facts.ToolCallAuthorized) -> str:
    why = payload.rule or payload.reason
    origin = f"{payload.gate}: {why}" if why else payload.gate
    return f"{payload.decision} {short(payload.tool_use_id)} ({origin})"
