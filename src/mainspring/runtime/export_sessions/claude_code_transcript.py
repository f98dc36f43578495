"""Writes entries as lines of a Claude Code transcript (`~/.claude/projects/*/*.jsonl`).

The lines of one file form a chain by `uuid` and `parentUuid`. A subagent's lines form a chain of
their own with `isSidechain` and `agentId`. All ids are derived from the log, so the same log always
gives the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from mainspring.core.content import Block, TextBlock
from mainspring.core.events import Usage
from mainspring.harness.permissions.tool_names import claude_code_name
from mainspring.runtime.export_sessions.api_blocks import api_block
from mainspring.runtime.export_sessions.conversation_fold import (
    ConversationFold,
    ExportedCompaction,
    ExportedEntry,
    ExportedMessage,
    ExportedNotice,
    ExportedReply,
    ExportedText,
    ExportedThinking,
    ExportedTitle,
    ExportedToolResult,
    ExportedToolUse,
    Position,
)

_FORMAT = "2.1.0"
"""The Claude Code release whose format this is: readers of transcripts check it."""
_STOP_REASONS = frozenset(
    ("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptLine:
    """One line, and the thread whose file it belongs to."""

    thread_id: str
    json: bytes


def session_uuid(session_id: str) -> str:
    """A session's id in Claude Code's format."""
    return _uuid_text(session_id.partition("_")[2]) or derived_uuid(session_id)


class ClaudeCodeLines:
    """Writes the entries of one session. `session_name` is the id that the lines carry."""

    def __init__(self, *, session_name: str, main_thread: str) -> None:
        self._session_name = session_name
        self._main_thread = main_thread
        self._last_uuid: dict[str, str] = {}
        """The newest uuid of each thread."""
        self._calls: dict[str, str] = {}
        """The uuids of calls whose results are not written yet."""

    def write(
        self,
        entry: ExportedEntry,
        conversation: ConversationFold,
        media: Mapping[str, bytes],
    ) -> list[TranscriptLine]:
        match entry:
            case ExportedTitle(text=text):
                title = {"type": "custom-title", "customTitle": text}
                return [self._line(entry.at, {**title, "sessionId": self._session_name})]
            case ExportedCompaction():
                bodies = self._compaction_bodies(entry)
            case ExportedNotice(text=text):
                bodies = [_system("informational", text, level="error")]
            case ExportedMessage():
                bodies = [_message_body(entry, media)]
            case ExportedToolResult():
                bodies = [self._result_body(entry, conversation, media)]
            case ExportedText() | ExportedThinking() | ExportedToolUse():
                bodies = [reply_body(entry.exported_reply, reply_content(entry, media))]
        lines = [
            self._chain_line(entry, conversation.workspace, body, index)
            for index, body in enumerate(bodies)
        ]
        if isinstance(entry, ExportedToolUse):
            self._calls[entry.id] = self._last_uuid[entry.at.thread_id]
        return lines

    def _chain_line(
        self, entry: ExportedEntry, workspace: str, body: Mapping[str, object], index: int
    ) -> TranscriptLine:
        at = entry.at
        kind = type(entry).__name__
        name = entry.tool_use_id if isinstance(entry, ExportedToolResult) else at.event_id
        uuid = derived_uuid(self._session_name, kind, name, str(index))
        is_side = at.thread_id != self._main_thread
        line: dict[str, object] = {
            "parentUuid": self._last_uuid.get(at.thread_id),
            "isSidechain": is_side,
            "userType": "external",
            "cwd": workspace,
            "sessionId": self._session_name,
            "version": _FORMAT,
            "gitBranch": "",
            **({"agentId": at.thread_id} if is_side else {}),
            **body,
            "uuid": uuid,
            "timestamp": _timestamp(at.time),
        }
        self._last_uuid[at.thread_id] = uuid
        return self._line(at, line)

    def _line(self, at: Position, line: Mapping[str, object]) -> TranscriptLine:
        return TranscriptLine(thread_id=at.thread_id, json=msgspec.json.encode(line))

    def _compaction_bodies(self, entry: ExportedCompaction) -> list[dict[str, object]]:
        """Claude Code forgets everything before a boundary, so one is written only if the summary
        covers all of that."""
        if not entry.is_whole:
            return [_system("informational", f"Conversation compacted in part: {entry.summary}")]
        boundary = _system("compact_boundary", "Conversation compacted")
        boundary |= {
            "parentUuid": None,
            "logicalParentUuid": self._last_uuid.get(entry.at.thread_id),
            "compactMetadata": {"trigger": "auto", "preTokens": entry.tokens or 0},
        }
        summary: dict[str, object] = {
            "isCompactSummary": True,
            "isVisibleInTranscriptOnly": True,
            "type": "user",
            "message": {"role": "user", "content": entry.summary},
        }
        return [boundary, summary]

    def _result_body(
        self,
        entry: ExportedToolResult,
        conversation: ConversationFold,
        media: Mapping[str, bytes],
    ) -> dict[str, object]:
        result: dict[str, object] = {
            "tool_use_id": entry.tool_use_id,
            "type": "tool_result",
            "content": message_content(entry.content, media),
        }
        if entry.is_error:
            result["is_error"] = True
        agent = conversation.started_by.get(entry.tool_use_id)
        return {
            "type": "user",
            "message": {"role": "user", "content": [result]},
            **({"toolUseResult": {"agentId": agent}} if agent else {}),
            "sourceToolAssistantUUID": self._calls.pop(entry.tool_use_id, None),
        }


def _message_body(entry: ExportedMessage, media: Mapping[str, bytes]) -> dict[str, object]:
    content = message_content(entry.content, media)
    if entry.author == "system" and isinstance(content, str):
        content = f"<system-reminder>\n{content}\n</system-reminder>"
    return {
        **({"isMeta": True} if entry.author == "system" else {}),
        "type": "user",
        "message": {"role": "user", "content": content},
    }


def reply_content(
    entry: ExportedText | ExportedThinking | ExportedToolUse, media: Mapping[str, bytes]
) -> list[dict[str, object]]:
    match entry:
        case ExportedText(content=content):
            return [api_block(block, media) for block in content]
        case ExportedThinking(text=text, signature=signature):
            return [{"type": "thinking", "thinking": text, "signature": signature or ""}]
        case ExportedToolUse(name=name, input=tool_input):
            return [
                {
                    "type": "tool_use",
                    "id": entry.id,
                    "name": claude_code_name(name),
                    "input": tool_input,
                }
            ]


def reply_body(reply: ExportedReply, content: Sequence[dict[str, object]]) -> dict[str, object]:
    stop = reply.stop_reason if reply.stop_reason in _STOP_REASONS else None
    message: dict[str, object] = {
        "model": bare_model(reply.model),
        "id": f"msg_{derived_uuid(reply.id).replace('-', '')}",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _usage(reply.usage),
    }
    return {
        "message": message,
        **({"requestId": reply.request_id} if reply.request_id else {}),
        "type": "assistant",
    }


def bare_model(name: str | None) -> str:
    """The model without its provider; Claude Code's placeholder if there is none."""
    _, _, bare = (name or "").partition(":")
    return bare or name or "<synthetic>"


def _usage(usage: Usage) -> dict[str, object]:
    return msgspec.to_builtins(usage)


def _system(subtype: str, text: str, *, level: str = "info") -> dict[str, object]:
    return {
        "type": "system",
        "subtype": subtype,
        "content": text,
        "isMeta": False,
        "level": level,
    }


def message_content(
    blocks: Sequence[Block], media: Mapping[str, bytes]
) -> str | list[dict[str, object]]:
    if len(blocks) == 1 and isinstance(only := blocks[0], TextBlock):
        return only.text
    return [api_block(block, media) for block in blocks]


def _timestamp(time: datetime) -> str:
    moment = time.astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def derived_uuid(*names: str) -> str:
    """A stable id for these names, in the form of a random UUID."""
    digest = bytearray(hashlib.sha256("\0".join(names).encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    return _uuid_text(digest.hex())


def _uuid_text(digits: str) -> str:
    if len(digits) != 32 or not set(digits) <= set("0123456789abcdef"):
        return ""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
