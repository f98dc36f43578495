"""Starts a session with a conversation from elsewhere: its messages become events."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import msgspec

from mainspring.core import ids
from mainspring.core.content import Block, TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    AgentMessage,
    AgentThinking,
    AgentToolResult,
    AgentToolUse,
    KnownPayload,
    ModelRequestEnded,
    ModelRequestStarted,
    SessionImported,
    StatusIdle,
    StatusRunning,
    StopReason,
    Usage,
    UserMessage,
)
from mainspring.core.model import Assistant, Message, Thinking, ToolResultBlock, ToolUse, User
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog

HistoryMessage: TypeAlias = Message | Mapping[str, object]
"""A message as `Session.history` returns it, or as JSON: `{"role": "user", "content": "..."}`."""
_FORMAT = "history"


def read_messages(history: Sequence[HistoryMessage]) -> list[Message]:
    """
    Raises:
        InvalidInput: an item is not a message.
    """
    messages: list[Message] = []
    for index, item in enumerate(history):
        if isinstance(item, User | Assistant):
            messages.append(item)
            continue
        content = item.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        try:
            message = msgspec.convert({**item, "content": blocks}, Message, strict=True)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"message {index + 1} of the history: {error}") from error
        messages.append(cast("Message", message))
    return messages


async def add_history(log: SessionLog, session_id: str, history: Sequence[HistoryMessage]) -> None:
    """Write the messages at the beginning of a session that has none, all or nothing.

    Raises:
        InvalidInput: an item is not a message, or the last one is the user's.
    """
    messages = read_messages(history)
    if messages and isinstance(messages[-1], User):
        raise InvalidInput("a history ends with an answer: send the last message instead")
    encoded = msgspec.json.encode(messages)
    imported = SessionImported(
        format=_FORMAT,
        path="",
        source_session_id="",
        sha256=hashlib.sha256(encoded).hexdigest(),
    )
    async with hold_session(log, session_id) as writer:
        if writer.head.seq > 1:
            return  # written before a crash
        events = _Events()
        for message in messages:
            events.add_message(message)
        events.end_run()
        payloads = [*events.payloads, imported]
        await writer.append(*payloads, event_ids=[*events.event_ids, ids.new_id(ids.EVENT)])


class _Events:
    """The events that a conversation would have made."""

    def __init__(self) -> None:
        self.payloads: list[KnownPayload] = []
        self.event_ids: list[str] = []
        self._calls: dict[str, str] = {}
        self._is_running = False

    def add_message(self, message: Message) -> None:
        if isinstance(message, Assistant):
            self._add_reply(message)
            return
        results = [part for part in message.content if isinstance(part, ToolResultBlock)]
        for part in results:
            call_id = self._calls.get(part.tool_use_id)
            if call_id is None:
                raise InvalidInput(f"the history has a result without its call: {part.tool_use_id}")
            self._add(
                AgentToolResult(tool_use_id=call_id, content=part.content, is_error=part.is_error)
            )
        content: tuple[Block, ...] = tuple(
            part for part in message.content if not isinstance(part, ToolResultBlock)
        )
        if content:
            self.end_run()
            self._add(UserMessage(content=content))

    def end_run(self) -> None:
        if self._is_running:
            idle = StatusIdle(stop_reason=StopReason(type="end_turn"), reason="completed")
            self._add(idle)
            self._is_running = False

    def _add_reply(self, message: Assistant) -> None:
        if not self._is_running:
            self._add(StatusRunning())
            self._is_running = True
        started = self._add(ModelRequestStarted())
        for part in message.content:
            match part:
                case TextBlock():
                    self._add(AgentMessage(content=(part,)))
                case Thinking(text=text, signature=signature):
                    self._add(AgentThinking(text=text, signature=signature))
                case ToolUse(id=id_):
                    self._calls[id_] = self._add(AgentToolUse(name=part.name, input=part.input))
        has_calls = any(isinstance(part, ToolUse) for part in message.content)
        request_end = ModelRequestEnded(
            model_request_start_id=started,
            model_usage=Usage(),
            stop_reason="tool_use" if has_calls else "end_turn",
        )
        self._add(request_end)

    def _add(self, payload: KnownPayload) -> str:
        self.payloads.append(payload)
        self.event_ids.append(ids.new_id(ids.EVENT))
        return self.event_ids[-1]
