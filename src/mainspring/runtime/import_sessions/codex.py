"""Reads Codex's session files: `sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`.

Each line is `{timestamp, type, payload}`; the first versions wrote only the payload. Calls and
their outputs are matched by `call_id`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from mainspring.core.content import Block, plain_text
from mainspring.core.events import Usage
from mainspring.runtime.import_sessions.foreign_json import (
    JsonLine,
    JsonLines,
    arguments,
    content_blocks,
    decode_object,
    image_at,
    integer,
    is_list,
    mapping,
    sequence,
    string,
    text_block,
    timestamp,
)
from mainspring.runtime.import_sessions.source_session import (
    SourceCall,
    SourceCallResult,
    SourceCompaction,
    SourceItem,
    SourcePart,
    SourcePrompt,
    SourceReply,
    SourceSession,
    SourceText,
    SourceThinking,
)

_ITEM_TYPES = frozenset(
    (
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
    )
)
_TOOL_TEXT_PREFIXES = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<permissions instructions>",
    "<turn_aborted>",
)
_EXIT = re.compile(r"^(?:Exit code: |Process exited with code )(\d+)", re.MULTILINE)
_NAME_ID = re.compile(r"rollout-.*?-([0-9a-fA-F]{8}-[0-9a-fA-F-]{27})$")


def is_codex(head: list[dict[str, object]]) -> bool:
    if not head:
        return False
    first = head[0]
    if first.get("type") == "session_meta":
        return True
    is_old = "id" in first and "timestamp" in first and "type" not in first
    return is_old and ("instructions" in first or any("record_type" in item for item in head))


def source_id(path: Path, head: list[dict[str, object]]) -> str:
    first = head[0] if head else {}
    meta = mapping(first.get("payload")) if "payload" in first else first
    match = _NAME_ID.search(path.stem)
    return string(meta.get("id")) or (match[1] if match else path.stem)


def read(path: Path) -> SourceSession:
    """Raises: InvalidInput, OSError."""
    session = SourceSession(format="codex", path=str(path))
    reader = _CodexReader(session)
    lines = JsonLines(path, session.findings)
    for line in lines:
        reader.read_line(line, lines)
    reader.end()
    session.sha256 = lines.sha256
    session.id = session.id or source_id(path, [])
    return session


@dataclass(slots=True)
class _CodexReader:
    session: SourceSession
    model: str | None = None
    source_reply: SourceReply | None = None
    """The reply that further items belong to."""
    counted_reply: SourceReply | None = None
    """The reply that a token count belongs to."""
    typed_texts: set[str] = field(default_factory=set[str])
    """The messages that the user typed, according to events."""

    def end(self) -> None:
        """Mark prompts before the first typed message as not the person's: Codex adds instructions
        there in the user's name."""
        items = self.session.main.items
        prompts = [i for i, item in enumerate(items) if isinstance(item, SourcePrompt)]
        first = next((i for i in prompts if _text(items[i]) in self.typed_texts), 0)
        for i in prompts:
            if i < first and isinstance(prompt := items[i], SourcePrompt):
                items[i] = replace(prompt, is_person=False)

    def read_line(self, line: JsonLine, lines: JsonLines) -> None:
        value = line.value
        time = timestamp(value.get("timestamp"))
        payload = mapping(value.get("payload"))
        match value.get("type"):
            case "session_meta":
                self._describe(payload, time)
            case "turn_context":
                self.model = string(payload.get("model")) or self.model
            case "response_item":
                self._item(payload, line.number, time)
            case "compacted":
                self._compacted(payload, line.number, time)
            case "event_msg":
                self._event(payload)
            case _:
                self._read_bare_line(line, time, lines)

    def _read_bare_line(self, line: JsonLine, time: datetime | None, lines: JsonLines) -> None:
        """An entry as the first versions wrote it, or of an unknown kind."""
        kind = string(line.value.get("type"))
        if kind in _ITEM_TYPES:
            self._item(line.value, line.number, time)
        elif kind or "record_type" in line.value:
            self.session.left_out[kind or "state"] += 1
        elif "id" in line.value:
            self._describe(line.value, time)
        else:
            lines.add_finding(line.number, "has no type; the line was left out")

    def _describe(self, meta: dict[str, object], time: datetime | None) -> None:
        if self.session.id:
            return  # a fork repeats the beginning of its parent
        self.session.id = string(meta.get("id"))
        self.session.started = timestamp(meta.get("timestamp")) or time
        metadata = {
            "cwd": string(meta.get("cwd")),
            "version": string(meta.get("cli_version")),
            "git_branch": string(mapping(meta.get("git")).get("branch")),
        }
        self.session.metadata.update({key: value for key, value in metadata.items() if value})

    def _item(self, item: dict[str, object], number: int, time: datetime | None) -> None:
        kind = string(item.get("type"))
        match kind:
            case "message" if item.get("role") == "assistant":
                self._add_part(number, time, SourceText(plain_text(_content(item.get("content")))))
            case "message":
                self._prompt(item, number, time)
            case "reasoning":
                if thought := _thought(item):
                    self._add_part(number, time, SourceThinking(thought))
            case "function_call" | "custom_tool_call" | "local_shell_call":
                self._call(item, number, time)
            case "function_call_output" | "custom_tool_call_output":
                self._result(item, number, time)
            case _:
                self.session.left_out[kind or "item"] += 1

    def _add_part(self, number: int, time: datetime | None, part: SourcePart) -> None:
        if self.source_reply is None:
            self.source_reply = self.counted_reply = SourceReply(
                id=str(number), time=time, model=self.model
            )
            self.session.main.items.append(self.source_reply)
        self.source_reply.parts.append(part)

    def _prompt(self, item: dict[str, object], number: int, time: datetime | None) -> None:
        content = _content(item.get("content"))
        if not content:
            return
        self.source_reply = None
        is_tool = item.get("role") != "user" or plain_text(content).startswith(_TOOL_TEXT_PREFIXES)
        self.session.main.items.append(
            SourcePrompt(id=str(number), time=time, content=content, is_person=not is_tool)
        )

    def _call(self, item: dict[str, object], number: int, time: datetime | None) -> None:
        call_id = string(item.get("call_id")) or string(item.get("id"))
        if not call_id:
            self.session.left_out["call without id"] += 1
            return
        match item.get("type"):
            case "function_call":
                raw = string(item.get("arguments"))
                tool_input = decode_object(raw.encode("utf-8", "replace")) or {"arguments": raw}
            case "custom_tool_call":
                tool_input = {"input": string(item.get("input"))}
            case _:
                tool_input = mapping(item.get("action"))
        name = string(item.get("name")) or "local_shell"
        self._add_part(number, time, SourceCall(id=call_id, name=name, input=arguments(tool_input)))

    def _result(self, item: dict[str, object], number: int, time: datetime | None) -> None:
        self.source_reply = None
        content, is_error = _output(item.get("output"))
        result = SourceCallResult(id=str(number), time=time, content=content, is_error=is_error)
        self.session.main.results.setdefault(string(item.get("call_id")), result)

    def _compacted(self, payload: dict[str, object], number: int, time: datetime | None) -> None:
        self.source_reply = None
        summary = string(payload.get("message")) or "\n\n".join(
            plain_text(_content(mapping(item).get("content")))
            for item in sequence(payload.get("replacement_history"))
        )
        compaction = SourceCompaction(id=str(number), time=time, summary=summary.strip())
        self.session.main.items.append(compaction)

    def _event(self, payload: dict[str, object]) -> None:
        match payload.get("type"):
            case "token_count" if self.counted_reply is not None:
                usage = mapping(mapping(payload.get("info")).get("last_token_usage"))
                if usage:
                    self.counted_reply.usage = _usage(usage)
            case "user_message":
                self.typed_texts.add(string(payload.get("message")).strip())
            case "thread_name_updated":
                name = string(payload.get("thread_name")) or string(payload.get("name"))
                self.session.title = name or self.session.title
            case "thread_rolled_back":
                self._roll_back(integer(payload.get("num_turns")))
            case kind:
                self.session.left_out[string(kind) or "event"] += 1

    def _roll_back(self, turns: int) -> None:
        """The user undid their last turns."""
        items = self.session.main.items
        prompts = [
            i for i, item in enumerate(items) if isinstance(item, SourcePrompt) and item.is_person
        ]
        if turns and prompts:
            start = prompts[-min(turns, len(prompts))]
            self.session.left_out["rolled back"] += len(items) - start
            del items[start:]
        self.source_reply = self.counted_reply = None


def _content(value: object) -> tuple[Block, ...]:
    def other(block: dict[str, object]) -> tuple[Block, ...]:
        match block.get("type"):
            case "input_text" | "output_text":
                return text_block(string(block.get("text")))
            case "input_image":
                return image_at(string(block.get("image_url")))
            case _:
                return ()

    return content_blocks(value, other)


def _text(item: SourceItem) -> str:
    return plain_text(item.content).strip() if isinstance(item, SourcePrompt) else ""


def _thought(item: dict[str, object]) -> str:
    parts = sequence(item.get("summary")) or sequence(item.get("content"))
    return "\n\n".join(filter(None, (string(mapping(part).get("text")) for part in parts)))


def _output(value: object) -> tuple[tuple[Block, ...], bool]:
    """The result of a call, and whether it failed."""
    if is_list(value):
        return _content(value), False
    wrapped = mapping(value)
    content = _content(wrapped.get("content") if wrapped else value)
    text = plain_text(content)
    if wrapped:
        return content, wrapped.get("success") is False
    inner = decode_object(text.encode("utf-8", "replace")) if text.startswith("{") else None
    if inner is not None and "output" in inner:  # as older versions wrote it
        code = integer(mapping(inner.get("metadata")).get("exit_code"))
        return text_block(string(inner.get("output"))), code != 0
    code = _EXIT.search(text[:1000])
    return content, code is not None and code[1] != "0"


def _usage(fields: dict[str, object]) -> Usage:
    cached = integer(fields.get("cached_input_tokens"))
    return Usage(
        input_tokens=max(integer(fields.get("input_tokens")) - cached, 0),
        cache_read_input_tokens=cached,
        output_tokens=integer(fields.get("output_tokens")),
    )
