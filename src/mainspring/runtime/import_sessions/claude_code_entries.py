"""Entries of Claude Code's session files, and the conversation that they form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from mainspring.core.content import Block, plain_text
from mainspring.core.events import Usage
from mainspring.runtime.import_sessions.foreign_json import (
    content_blocks,
    image,
    image_at,
    integer,
    mapping,
    reply_part,
    sequence,
    string,
    text_block,
    timestamp,
)
from mainspring.runtime.import_sessions.source_session import (
    SourceCallResult,
    SourceCompaction,
    SourcePrompt,
    SourceReply,
    SourceSession,
    SourceThread,
)

_COMMAND = re.compile(r"<command-name>/?([^<]*)</command-name>")
_COMMAND_ARGUMENTS = re.compile(r"<command-args>([^<]*)</command-args>")
_TOOL_TEXT_PREFIXES = (
    "<local-command-",
    "<bash-",
    "<task-notification>",
    "<system-reminder>",
    "Caveat:",
)
_SYNTHETIC = "<synthetic>"


@dataclass(frozen=True, slots=True)
class ClaudeCodeEntry:
    number: int
    uuid: str
    parent: str | None
    value: dict[str, object]

    @property
    def type(self) -> str:
        return string(self.value.get("type"))

    @property
    def is_sidechain(self) -> bool:
        return self.value.get("isSidechain") is True

    @property
    def message(self) -> dict[str, object]:
        return mapping(self.value.get("message"))

    @property
    def message_id(self) -> str:
        return string(self.message.get("id")) or self.uuid

    @property
    def time(self) -> datetime | None:
        return timestamp(self.value.get("timestamp"))

    @property
    def blocks(self) -> list[dict[str, object]]:
        content = self.message.get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [mapping(item) for item in sequence(content)]


def result_ids(entry: ClaudeCodeEntry) -> set[str]:
    """The ids of the calls whose results an entry contains."""
    if entry.type != "user":
        return set()
    return {string(b.get("tool_use_id")) for b in entry.blocks if b.get("type") == "tool_result"}


def conversation(entries: list[ClaudeCodeEntry], session: SourceSession) -> SourceThread:
    thread = SourceThread()
    replies: dict[str, SourceReply] = {}
    for entry in entries:
        match entry.type:
            case "assistant":
                _add_reply(thread, replies, entry, session)
            case "user":
                _add_user(thread, entry, session)
            case kind:
                session.left_out[string(entry.value.get("subtype")) or kind] += 1
    return thread


def _add_reply(
    thread: SourceThread,
    replies: dict[str, SourceReply],
    entry: ClaudeCodeEntry,
    session: SourceSession,
) -> None:
    message = entry.message
    model = string(message.get("model"))
    if model == _SYNTHETIC or entry.value.get("isApiErrorMessage") is True:
        session.left_out["api error"] += 1
        return
    reply = replies.get(entry.message_id)
    if reply is None:
        reply = replies[entry.message_id] = SourceReply(id=entry.message_id, time=entry.time)
        thread.items.append(reply)
    reply.model = model or reply.model
    reply.stop_reason = string(message.get("stop_reason")) or reply.stop_reason
    reply.usage = _max_usage(reply.usage, mapping(message.get("usage")))
    for block in entry.blocks:
        reply.parts += reply_part(block, call_type="tool_use", input_key="input")


def _max_usage(usage: Usage, fields: dict[str, object]) -> Usage:
    """Every line of a reply repeats the usage; the last one has the whole output."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(
        **{
            name: max(getattr(usage, name), integer(fields.get(name)))
            for name in (*names, "output_tokens")
        }
    )


def _add_user(thread: SourceThread, entry: ClaudeCodeEntry, session: SourceSession) -> None:
    content: tuple[Block, ...] = ()
    for block in entry.blocks:
        if block.get("type") == "tool_result":
            call_id = string(block.get("tool_use_id"))
            result = SourceCallResult(
                id=f"{entry.uuid}:{call_id}",
                time=entry.time,
                content=_content(block.get("content")),
                is_error=block.get("is_error") is True,
            )
            thread.results.setdefault(call_id, result)
        else:
            content += _content([block])
    if not content:
        return
    if entry.value.get("isCompactSummary") is True:
        thread.items.append(
            SourceCompaction(id=entry.uuid, time=entry.time, summary=plain_text(content))
        )
    elif entry.value.get("isVisibleInTranscriptOnly") is True:
        session.left_out["shown to the user only"] += 1
    else:
        thread.items.append(_prompt(entry, content))


def _prompt(entry: ClaudeCodeEntry, content: tuple[Block, ...]) -> SourcePrompt:
    text = plain_text(content)
    if command := _COMMAND.search(text):
        arguments = _COMMAND_ARGUMENTS.search(text)
        content = text_block(f"/{command[1]} {arguments[1] if arguments else ''}".strip())
        text = ""
    is_tool = entry.value.get("isMeta") is True or text.startswith(_TOOL_TEXT_PREFIXES)
    return SourcePrompt(
        id=entry.uuid,
        time=entry.time,
        content=content,
        is_person=not is_tool,
    )


def _content(value: object) -> tuple[Block, ...]:
    def other(block: dict[str, object]) -> tuple[Block, ...]:
        source = mapping(block.get("source"))
        match block.get("type"):
            case "image" if source.get("type") == "base64":
                return image(string(source.get("media_type")), string(source.get("data")))
            case "image" | "document":
                return image_at(string(source.get("url")))
            case "tool_reference":
                return text_block(string(block.get("tool_name")))
            case _:
                return ()

    return content_blocks(value, other)
