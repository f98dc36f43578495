"""Reads OpenHands' conversations: a folder of events, one JSON file each, or one file with all
events.

There are two generations: events with `kind` (the agent SDK), and older ones with `action` and
`observation`, where an observation names its action by `cause`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from mainspring.core.content import Block
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Usage
from mainspring.runtime.import_sessions.foreign_json import (
    MAX_FILE_BYTES,
    MAX_FINDINGS,
    arguments,
    content_blocks,
    decode_json,
    decode_object,
    image_at,
    integer,
    is_list,
    is_object,
    mapping,
    read_whole,
    sequence,
    storable_json,
    string,
    text_block,
    timestamp,
)
from mainspring.runtime.import_sessions.source_session import (
    ImportFinding,
    SourceCall,
    SourceCallResult,
    SourceCompaction,
    SourcePart,
    SourcePrompt,
    SourceReply,
    SourceSession,
    SourceText,
    SourceThinking,
)

_MAX_EVENTS = 200_000  # files of one session
_NUMBER = re.compile(r"(\d+)")
_EVENT_NAME = re.compile(r"(?:event[-_])?\d+(?:[-_].*)?\.json")
_LISTS = ("trajectory", "history", "events")
"""The keys under which an exported file may have its events."""
_CALLS = frozenset(
    (
        "run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive",
        "call_tool_mcp", "delegate", "task_tracking",
    )
)  # fmt: skip


def event_files(folder: Path) -> list[Path]:
    """The event files of a conversation's folder, in order; empty if it has none."""
    inner = folder / "events"
    place = inner if inner.is_dir() and not inner.is_symlink() else folder
    files = [
        item
        for item in place.glob("*.json")
        if _EVENT_NAME.fullmatch(item.name) and item.is_file() and not item.is_symlink()
    ]
    return sorted(files, key=lambda path: (_number(path.name), path.name))


def is_event(value: dict[str, object]) -> bool:
    return "source" in value and any(key in value for key in ("kind", "action", "observation"))


def events_in(value: object) -> list[object]:
    """The events of one exported file; empty if it has none."""
    fields = mapping(value)
    events = sequence(value) if is_list(value) else _first_list(fields)
    return events if events and is_event(mapping(events[0])) else []


def _first_list(fields: dict[str, object]) -> list[object]:
    return next((sequence(fields[key]) for key in _LISTS if key in fields), list[object]())


def folder_id(path: Path) -> str:
    return path.parent.name if path.name == "events" else path.name


def file_id(path: Path, values: list[object]) -> str:
    """Exported files often have the same name: the first event distinguishes conversations."""
    first = msgspec.json.encode(storable_json(values[0]), order="deterministic") if values else b""
    return f"{path.stem}-{hashlib.sha256(first).hexdigest()[:12]}"


def read(path: Path) -> SourceSession:
    """Raises: InvalidInput, OSError."""
    session = SourceSession(format="openhands", path=str(path), id=folder_id(path))
    reader = _OpenHandsReader(session, _describe(session, path))
    for event in _events(path, session):
        session.started = session.started or timestamp(event.get("timestamp"))
        if "kind" in event:
            reader.read_event(event)
        else:
            reader.read_old_event(event)
    return session


def _describe(session: SourceSession, path: Path) -> str | None:
    """Read the working folder from the files beside the events. Returns the model."""
    folder = path.parent if path.name == "events" else path
    try:
        state = decode_object(read_whole(folder / "base_state.json")) or {}
    except (InvalidInput, OSError):
        return None
    if cwd := string(mapping(state.get("workspace")).get("working_dir")):
        session.metadata["cwd"] = cwd
    return string(mapping(mapping(state.get("agent")).get("llm")).get("model")) or None


def _events(path: Path, session: SourceSession) -> Iterator[dict[str, object]]:
    digest = hashlib.sha256()
    if path.is_dir():
        bytes_left = MAX_FILE_BYTES
        for file in event_files(path)[:_MAX_EVENTS]:
            content = read_whole(file)
            bytes_left -= len(content)
            if bytes_left < 0:
                raise InvalidInput(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
            digest.update(content)
            value = decode_object(content)
            if value is None:
                _add_finding(session, file, 1)
            else:
                yield value
    else:
        content = read_whole(path)
        digest.update(content)
        values = events_in(decode_json(content))
        if not values:
            raise InvalidInput(f"{path} is not JSON with a list of OpenHands events")
        session.id = file_id(path, values)
        for number, value in enumerate(values[:_MAX_EVENTS], 1):
            if is_object(value):
                yield mapping(value)
            else:
                _add_finding(session, path, number)
    session.sha256 = digest.hexdigest()


def _add_finding(session: SourceSession, path: Path, number: int) -> None:
    if len(session.findings) < MAX_FINDINGS:
        what = "is not a JSON object; the event was left out"
        session.findings.append(ImportFinding(path=str(path), line=number, what=what))


def _number(name: str) -> int:
    match = _NUMBER.search(name)
    return int(match[1][:18]) if match else 0


@dataclass(slots=True)
class _OpenHandsReader:
    session: SourceSession
    model: str | None
    replies: dict[str, SourceReply] = field(default_factory=dict[str, SourceReply])
    item_of: dict[str, str] = field(default_factory=dict[str, str])
    """Ids of items by the ids of their events."""
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """Ids of calls by the ids of their action events."""

    def read_event(self, event: dict[str, object]) -> None:
        event_id, time = string(event.get("id")), timestamp(event.get("timestamp"))
        match event.get("kind"):
            case "MessageEvent":
                message = mapping(event.get("llm_message"))
                content = _content(message.get("content"))
                self._message(event, event_id, time, content)
            case "ActionEvent":
                self._act(event, event_id, time)
            case "ObservationEvent":
                result = mapping(event.get("observation"))
                content = _content(result.get("content") or result.get("output"))
                is_error = result.get("is_error") is True
                self._result(event, event_id, time, content, is_error=is_error)
            case "AgentErrorEvent":
                content = text_block(string(event.get("error")))
                self._result(event, event_id, time, content, is_error=True)
            case "UserRejectObservation":
                reason = f"Action rejected: {string(event.get('rejection_reason'))}"
                self._result(event, event_id, time, text_block(reason), is_error=True)
            case "Condensation":
                self._condense(event, event_id, time)
            case kind:
                self.session.left_out[string(kind) or "event"] += 1

    def read_old_event(self, event: dict[str, object]) -> None:
        event_id, time = str(event.get("id", "")), timestamp(event.get("timestamp"))
        arguments = mapping(event.get("args"))
        match event.get("action"):
            case "message":
                content = text_block(string(arguments.get("content")))
                for url in sequence(arguments.get("image_urls")):
                    content += image_at(string(url))
                self._message(event, event_id, time, content)
            case "condensation":
                self._condense({**arguments, "id": event_id}, event_id, time)
            case "finish" | "think" | "reject":
                thought = (
                    arguments.get("final_thought")
                    or arguments.get("thought")
                    or event.get("message")
                )
                self._add_part(
                    self._response(event) or event_id, event_id, time, SourceText(string(thought))
                )
            case str(name) if name in _CALLS:
                self._call_action(event, event_id, time, name)
            case None if "observation" in event:
                self._observe(event, event_id, time)
            case kind:
                self.session.left_out[string(kind) or "event"] += 1

    def _message(
        self,
        event: dict[str, object],
        event_id: str,
        time: datetime | None,
        content: tuple[Block, ...],
    ) -> None:
        if event.get("source") == "agent":
            for block in content:
                text = getattr(block, "text", "")
                self._add_part(self._response(event) or event_id, event_id, time, SourceText(text))
            return
        if content:
            is_person = event.get("source") == "user"
            self.item_of[event_id] = event_id
            self.session.main.items.append(
                SourcePrompt(id=event_id, time=time, content=content, is_person=is_person)
            )

    def _act(self, event: dict[str, object], event_id: str, time: datetime | None) -> None:
        call = mapping(event.get("tool_call"))
        call_id = string(event.get("tool_call_id")) or string(call.get("id")) or event_id
        name = string(event.get("tool_name")) or string(call.get("name")) or "unknown"
        raw = string(call.get("arguments")) or string(
            mapping(call.get("function")).get("arguments")
        )
        tool_input = decode_object(raw.encode("utf-8", "replace")) or mapping(event.get("action"))
        response = string(event.get("llm_response_id")) or event_id
        if thought := string(event.get("reasoning_content")):
            self._add_part(response, event_id, time, SourceThinking(thought))
        for block in _content(event.get("thought")):
            self._add_part(response, event_id, time, SourceText(getattr(block, "text", "")))
        self.calls[event_id] = call_id
        self._add_part(
            response, event_id, time, SourceCall(id=call_id, name=name, input=arguments(tool_input))
        )

    def _call_action(
        self, event: dict[str, object], event_id: str, time: datetime | None, name: str
    ) -> None:
        metadata, tool_input = mapping(event.get("tool_call_metadata")), mapping(event.get("args"))
        call_id = string(metadata.get("tool_call_id")) or f"event-{event_id}"
        response = self._response(event) or event_id
        if thought := string(tool_input.get("thought")):
            self._add_part(response, event_id, time, SourceText(thought))
        without_thought = {key: value for key, value in tool_input.items() if key != "thought"}
        tool_name = string(metadata.get("function_name")) or name
        self.calls[event_id] = call_id
        reply = self._add_part(
            response,
            event_id,
            time,
            SourceCall(id=call_id, name=tool_name, input=arguments(without_thought)),
        )
        answer = mapping(metadata.get("model_response"))
        usage = mapping(answer.get("usage"))
        reply.model = string(answer.get("model")) or reply.model
        if usage:
            reply.usage = Usage(
                input_tokens=integer(usage.get("prompt_tokens")),
                output_tokens=integer(usage.get("completion_tokens")),
            )

    def _observe(self, event: dict[str, object], event_id: str, time: datetime | None) -> None:
        call_id = self.calls.get(str(event.get("cause", "")))
        if call_id is None:
            self.session.left_out[string(event.get("observation")) or "observation"] += 1
            return
        extras = mapping(event.get("extras"))
        code = mapping(extras.get("metadata")).get("exit_code", extras.get("exit_code"))
        is_error = event.get("observation") == "error" or integer(code) > 0
        content = text_block(string(event.get("content")))
        result = SourceCallResult(id=event_id, time=time, content=content, is_error=is_error)
        self.session.main.results.setdefault(call_id, result)

    def _result(
        self,
        event: dict[str, object],
        event_id: str,
        time: datetime | None,
        content: tuple[Block, ...],
        *,
        is_error: bool,
    ) -> None:
        call_id = string(event.get("tool_call_id")) or self.calls.get(
            string(event.get("action_id")), ""
        )
        result = SourceCallResult(id=event_id, time=time, content=content, is_error=is_error)
        self.session.main.results.setdefault(call_id, result)

    def _condense(self, event: dict[str, object], event_id: str, time: datetime | None) -> None:
        forgotten = {str(entry) for entry in sequence(event.get("forgotten_event_ids"))}
        positions = {key: index for index, key in enumerate(self.item_of)}
        last = max((positions.get(entry, -1) for entry in forgotten), default=len(positions))
        first_kept = next((item for i, item in enumerate(self.item_of.values()) if i > last), None)
        summary = string(event.get("summary"))
        self.session.main.items.append(
            SourceCompaction(id=event_id, time=time, summary=summary, first_kept_id=first_kept)
        )

    def _add_part(
        self, response: str, event_id: str, time: datetime | None, part: SourcePart
    ) -> SourceReply:
        reply = self.replies.get(response)
        if reply is None:
            reply = self.replies[response] = SourceReply(id=response, time=time, model=self.model)
            self.session.main.items.append(reply)
        self.item_of[event_id] = response
        reply.parts.append(part)
        return reply

    def _response(self, event: dict[str, object]) -> str:
        metadata = mapping(event.get("tool_call_metadata"))
        answer = string(mapping(metadata.get("model_response")).get("id"))
        return answer or string(event.get("llm_response_id"))


def _content(value: object) -> tuple[Block, ...]:
    def other(block: dict[str, object]) -> tuple[Block, ...]:
        urls = sequence(block.get("image_urls")) if block.get("type") == "image" else ()
        return tuple(image for url in urls for image in image_at(string(url)))

    return content_blocks(value, other)
