"""Renders a running session as Claude Code prints one with `--output-format stream-json`: one
message for each part of a reply and each tool result, optionally the pieces of replies, and a
result per run.

Session ids are Mainspring's: `--resume` accepts the ids in these messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.core.errors import ProviderFailure
from mainspring.core.events import Usage
from mainspring.core.model import (
    Delta,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
)
from mainspring.harness.permissions.tool_names import claude_code_name
from mainspring.harness.state.open_call import call_id_of
from mainspring.harness.state.thread_tree import add_usage
from mainspring.harness.stop_reasons import EndReason
from mainspring.runtime.export_sessions.claude_code_transcript import (
    bare_model,
    derived_uuid,
    message_content,
    reply_body,
    reply_content,
)
from mainspring.runtime.export_sessions.conversation_fold import (
    ConversationFold,
    ExportedCompaction,
    ExportedEntry,
    ExportedMessage,
    ExportedNotice,
    ExportedText,
    ExportedThinking,
    ExportedTitle,
    ExportedToolResult,
    ExportedToolUse,
)
from mainspring.runtime.session.run_result import OK_REASONS

StreamMessage: TypeAlias = dict[str, object]
"""One line of the stream, before it is encoded."""

_RETRY_ERRORS: dict[ProviderFailure, str] = {
    "rate_limited": "rate_limit",
    "overloaded": "server_error",
    "server": "server_error",
}
"""Why a request is sent again, as Claude Code names it."""
_SUBTYPES: dict[EndReason, str] = {
    "max_turns": "error_max_turns",
    "budget_reached": "error_max_budget_usd",
}
_ERROR_SUBTYPE = "error_during_execution"


class RunEnd(Struct, frozen=True, kw_only=True):
    """How a run ended, for the result message."""

    reason: EndReason
    text: str
    detail: str | None = None
    duration: timedelta


class ModelUse(Struct):
    """The usage of one model in a run."""

    usage: Usage = Usage()
    cost_usd: Decimal = Decimal(0)


class ClaudeCodeStream:
    """Turns the events of one session into stream messages; give it all of them, in order."""

    def __init__(self, *, session_id: str, main_thread: str) -> None:
        self._session_id = session_id
        self._main_thread = main_thread
        self._fold = ConversationFold()
        self._pieces = ReplyPieces()
        self._calls: dict[str, tuple[str, Mapping[str, object]]] = {}
        self._requests: dict[str, datetime] = {}
        self._count = 0
        self._cost_usd = Decimal(0)
        """The cost of all runs that this object has seen."""
        self._begin_run()

    def _begin_run(self) -> None:
        self._denials: list[StreamMessage] = []
        self._models: dict[str, ModelUse] = {}
        self._model_time = timedelta()
        self._turns = 0

    def skip(self, event: Event) -> None:
        """Process an event from before the first run."""
        self.take(event, {})
        self._begin_run()
        self._cost_usd = Decimal(0)

    def take(self, event: Event, media: Mapping[str, bytes]) -> list[StreamMessage]:
        """The messages that this event completes. `media`: the blobs that its blocks refer to."""
        self._note(event)
        entries = self._fold.take(event)
        return [self._line(body, entry) for entry in entries if (body := _body(entry, media))]

    def piece(self, delta: Delta) -> list[StreamMessage]:
        """A part of a reply that is still being written, for `--include-partial-messages`."""
        return [self._event(piece) for piece in self._pieces.delta(delta)]

    def boundary(self, event: Event) -> list[StreamMessage]:
        """The beginning or end of a reply of the main thread, for the same option."""
        if event.thread_id != self._main_thread:
            return []
        match event.payload:
            case events.ModelRequestStarted(purpose=None, model=model):
                return [self._event(piece) for piece in self._pieces.begin(event.id, model)]
            case events.ModelRequestEnded(purpose=None) as request_end:
                return [self._event(piece) for piece in self._pieces.end(request_end)]
            case _:
                return []

    def init(self, fields: Mapping[str, object]) -> StreamMessage:
        return self._top({"type": "system", "subtype": "init", **fields})

    def retry(self, wait: RetryScheduled) -> StreamMessage:
        return self._top(
            {
                "type": "system",
                "subtype": "api_retry",
                "attempt": wait.attempt - 1,
                "max_retries": wait.attempts - 1,
                "retry_delay_ms": round(wait.seconds * 1000),
                "error_status": None,
                "error": _RETRY_ERRORS.get(wait.kind, "unknown"),
                "message": wait.reason,
            }
        )

    def result(self, end: RunEnd) -> StreamMessage:
        is_error = end.reason not in OK_REASONS
        subtype = _SUBTYPES.get(end.reason, _ERROR_SUBTYPE) if is_error else "success"
        outcome: StreamMessage = (
            {"errors": [end.detail or end.reason.replace("_", " ")]}
            if is_error
            else {"result": end.text}
        )
        message = self._top(
            {
                "type": "result",
                "subtype": subtype,
                "is_error": is_error,
                "duration_ms": _milliseconds(end.duration),
                "duration_api_ms": _milliseconds(self._model_time),
                "num_turns": self._turns,
                **outcome,
                "stop_reason": end.reason,
                "total_cost_usd": float(self._cost_usd),
                "usage": msgspec.to_builtins(self._usage()),
                "modelUsage": {name: _model_use(use) for name, use in self._models.items()},
                "permission_denials": self._denials,
            }
        )
        self._begin_run()
        return message

    def _note(self, event: Event) -> None:
        payload = event.payload
        match payload:
            case (
                events.AgentToolUse(name=name, input=tool_input)
                | events.AgentMcpToolUse(name=name, input=tool_input)
                | events.AgentCustomToolUse(name=name, input=tool_input)
            ):
                self._calls[event.id] = (name, tool_input)
            case events.AgentToolResult() | events.AgentMcpToolResult():
                self._note_result(payload)
            case events.ModelRequestStarted():
                self._requests[event.id] = event.time
            case events.ModelRequestEnded():
                is_turn = payload.purpose is None and event.thread_id == self._main_thread
                self._turns += is_turn
                self._note_request(payload, event.time)
            case _:
                pass

    def _note_result(self, result: events.AgentToolResult | events.AgentMcpToolResult) -> None:
        call_id = call_id_of(result) or ""
        name, tool_input = self._calls.pop(call_id, ("", {}))
        if result.error == "denied":
            denial = {"tool_name": claude_code_name(name), "tool_use_id": call_id}
            self._denials.append({**denial, "tool_input": dict(tool_input)})

    def _note_request(self, ended: events.ModelRequestEnded, time: datetime) -> None:
        started = self._requests.pop(ended.model_request_start_id, None)
        if started is not None:
            self._model_time += time - started
        use = self._models.setdefault(bare_model(ended.model), ModelUse())
        use.usage = add_usage(use.usage, ended.model_usage)
        cost = Decimal(ended.cost_usd or 0)
        use.cost_usd += cost
        self._cost_usd += cost

    def _usage(self) -> Usage:
        return reduce(add_usage, (use.usage for use in self._models.values()), Usage())

    def _line(self, body: StreamMessage, entry: ExportedEntry) -> StreamMessage:
        subagent = self._fold.subagents.get(entry.at.thread_id)
        caller = None if subagent is None else subagent.tool_use_id
        return self._top({**body, "parent_tool_use_id": caller})

    def _event(self, piece: StreamMessage) -> StreamMessage:
        return self._top({"type": "stream_event", "event": piece, "parent_tool_use_id": None})

    def _top(self, body: StreamMessage) -> StreamMessage:
        self._count += 1
        uuid = derived_uuid(self._session_id, "stream", str(self._count))
        return {**body, "session_id": self._session_id, "uuid": uuid}


def _body(entry: ExportedEntry, media: Mapping[str, bytes]) -> StreamMessage | None:
    match entry:
        case ExportedText() | ExportedThinking() | ExportedToolUse():
            reply = reply_body(entry.exported_reply, reply_content(entry, media))
            return {"type": "assistant", **reply}
        case ExportedToolResult():
            result: StreamMessage = {
                "type": "tool_result",
                "tool_use_id": entry.tool_use_id,
                "content": message_content(entry.content, media),
                "is_error": entry.is_error,
            }
            return {"type": "user", "message": {"role": "user", "content": [result]}}
        case ExportedCompaction(tokens=tokens):
            metadata = {"trigger": "auto", "pre_tokens": tokens or 0}
            return {"type": "system", "subtype": "compact_boundary", "compact_metadata": metadata}
        case ExportedMessage() | ExportedNotice() | ExportedTitle():
            return None


class ReplyPieces:
    """The deltas of a reply as the events of a streaming Messages API."""

    def __init__(self) -> None:
        self._block: str | None = None
        """The key of the open block: its type, or the call's id."""
        self._index = -1

    def begin(self, request_id: str, model: str | None) -> list[StreamMessage]:
        self._block, self._index = None, -1
        message: StreamMessage = {
            "id": f"msg_{derived_uuid(request_id).replace('-', '')}",
            "type": "message",
            "role": "assistant",
            "model": bare_model(model),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": msgspec.to_builtins(Usage()),
        }
        return [{"type": "message_start", "message": message}]

    def delta(self, delta: Delta) -> list[StreamMessage]:
        match delta:
            case TextDelta(text=text):
                start = self._open("text", {"type": "text", "text": ""})
                piece: StreamMessage = {"type": "text_delta", "text": text}
            case ThinkingDelta(text=text):
                start = self._open("thinking", {"type": "thinking", "thinking": ""})
                piece = {"type": "thinking_delta", "thinking": text}
            case ToolInputDelta(id=id_, name=name, json=json):
                use: StreamMessage = {"type": "tool_use", "id": id_}
                use |= {"name": claude_code_name(name), "input": dict[str, object]()}
                start = self._open(id_, use)
                piece = {"type": "input_json_delta", "partial_json": json}
            case _:
                return []
        return [*start, {"type": "content_block_delta", "index": self._index, "delta": piece}]

    def end(self, ended: events.ModelRequestEnded) -> list[StreamMessage]:
        delta = {"stop_reason": ended.stop_reason, "stop_sequence": None}
        usage = msgspec.to_builtins(ended.model_usage)
        return [
            *self._close(),
            {"type": "message_delta", "delta": delta, "usage": usage},
            {"type": "message_stop"},
        ]

    def _open(self, block: str, content: Mapping[str, object]) -> list[StreamMessage]:
        if block == self._block:
            return []
        closed = self._close()
        self._block, self._index = block, self._index + 1
        start: StreamMessage = {"type": "content_block_start", "index": self._index}
        return [*closed, {**start, "content_block": content}]

    def _close(self) -> Sequence[StreamMessage]:
        is_open, self._block = self._block is not None, None
        return [{"type": "content_block_stop", "index": self._index}] if is_open else []


def _model_use(use: ModelUse) -> StreamMessage:
    return {
        "inputTokens": use.usage.input_tokens,
        "outputTokens": use.usage.output_tokens,
        "cacheReadInputTokens": use.usage.cache_read_input_tokens,
        "cacheCreationInputTokens": use.usage.cache_creation_input_tokens,
        "costUSD": float(use.cost_usd),
    }


def _milliseconds(span: timedelta) -> int:
    return max(0, round(span / timedelta(milliseconds=1)))
