"""Reads pi's session files: a header, then entries that form a tree by `parentId`.

The conversation is the branch of the last entry. The first version had neither ids nor branches.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mainspring.core.content import Block
from mainspring.core.events import Usage
from mainspring.runtime.import_sessions.foreign_json import (
    JsonLine,
    JsonLines,
    branch_indexes,
    content_blocks,
    image,
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
)

_IGNORED_TYPES = frozenset(
    ("label", "session_info", "custom", "thinking_level_change", "model_change")
)
"""Entries that are in the tree but not part of the conversation."""


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    id: str
    parent: str | None
    value: dict[str, object]

    @property
    def time(self) -> datetime | None:
        message = mapping(self.value.get("message"))
        return timestamp(self.value.get("timestamp")) or timestamp(message.get("timestamp"))


def is_pi(head: list[dict[str, object]]) -> bool:
    first = head[0] if head else {}
    return first.get("type") == "session" and "id" in first and "cwd" in first


def source_id(path: Path, head: list[dict[str, object]]) -> str:
    return (string(head[0].get("id")) if head else "") or path.stem


def read(path: Path) -> SourceSession:
    """Raises: InvalidInput, OSError."""
    session = SourceSession(format="pi", path=str(path))
    lines = JsonLines(path, session.findings)
    entries: list[_Entry] = []
    for line in lines:
        if line.value.get("type") == "session":
            _describe(session, line.value)
        else:
            entries.append(_entry(line, entries))
    session.sha256 = lines.sha256
    session.id = session.id or path.stem
    for entry in _branch(entries, session, lines):
        _read_entry(session, entry)
    return session


def _describe(session: SourceSession, header: dict[str, object]) -> None:
    session.id = string(header.get("id")) or session.id
    session.started = timestamp(header.get("timestamp"))
    metadata = {
        "cwd": string(header.get("cwd")),
        "version": str(integer(header.get("version")) or 1),
        "parent_session": string(header.get("parentSession")),
    }
    session.metadata.update({key: value for key, value in metadata.items() if value})


def _entry(line: JsonLine, previous: list[_Entry]) -> _Entry:
    entry_id = string(line.value.get("id"))
    if entry_id and "parentId" in line.value:
        return _Entry(line.number, entry_id, string(line.value["parentId"]) or None, line.value)
    parent = previous[-1].id if previous else None
    return _Entry(line.number, entry_id or f"line-{line.number}", parent, line.value)


def _branch(entries: list[_Entry], session: SourceSession, lines: JsonLines) -> list[_Entry]:
    index_of = {entry.id: index for index, entry in enumerate(entries)}
    indexes = branch_indexes(entries, index_of, len(entries) - 1 if entries else None, lines)
    session.left_out["other branch"] += len(entries) - len(indexes)
    return [entries[i] for i in sorted(indexes)]


def _read_entry(session: SourceSession, entry: _Entry) -> None:
    value, items = entry.value, session.main.items
    match value.get("type"):
        case "message":
            _read_message(session, entry, mapping(value.get("message")))
        case "custom_message":
            _add(session, entry, _content(value.get("content")))
        case "branch_summary":
            _add(session, entry, text_block(string(value.get("summary"))))
        case "compaction":
            summary = string(value.get("summary"))
            first_kept = string(value.get("firstKeptEntryId")) or None
            items.append(
                SourceCompaction(
                    id=entry.id, time=entry.time, summary=summary, first_kept_id=first_kept
                )
            )
        case "session_info":
            session.title = string(value.get("name")) or session.title
        case kind:
            if string(kind) not in _IGNORED_TYPES:
                session.left_out[string(kind) or "entry"] += 1


def _read_message(session: SourceSession, entry: _Entry, message: dict[str, object]) -> None:
    match message.get("role"):
        case "user":
            _add(session, entry, _content(message.get("content")), is_person=True)
        case "assistant":
            session.main.items.append(_reply(entry, message))
        case "toolResult":
            result = SourceCallResult(
                id=entry.id,
                time=entry.time,
                content=_content(message.get("content")),
                is_error=message.get("isError") is True,
            )
            session.main.results.setdefault(string(message.get("toolCallId")), result)
        case "bashExecution" if message.get("excludeFromContext") is not True:
            text = f"Ran `{string(message.get('command'))}`\n{string(message.get('output'))}"
            _add(session, entry, text_block(text))
        case "custom" | "hookMessage":
            _add(session, entry, _content(message.get("content")))
        case "branchSummary" | "compactionSummary":
            _add(session, entry, text_block(string(message.get("summary"))))
        case role:
            session.left_out[string(role) or "message"] += 1


def _add(
    session: SourceSession, entry: _Entry, content: tuple[Block, ...], *, is_person: bool = False
) -> None:
    if content:
        session.main.items.append(
            SourcePrompt(id=entry.id, time=entry.time, content=content, is_person=is_person)
        )


def _reply(entry: _Entry, message: dict[str, object]) -> SourceReply:
    usage = mapping(message.get("usage"))
    return SourceReply(
        id=entry.id,
        time=entry.time,
        parts=[
            part
            for block in map(mapping, sequence(message.get("content")))
            for part in reply_part(block, call_type="toolCall", input_key="arguments")
        ],
        model=string(message.get("model")) or None,
        usage=Usage(
            input_tokens=integer(usage.get("input")),
            cache_creation_input_tokens=integer(usage.get("cacheWrite")),
            cache_read_input_tokens=integer(usage.get("cacheRead")),
            output_tokens=integer(usage.get("output")),
        ),
        stop_reason=string(message.get("stopReason")) or None,
    )


def _content(value: object) -> tuple[Block, ...]:
    def other(block: dict[str, object]) -> tuple[Block, ...]:
        is_image = block.get("type") == "image"
        return image(string(block.get("mimeType")), string(block.get("data"))) if is_image else ()

    return content_blocks(value, other)
