"""Extracts the conversation from a log that a client sent, in the form that the import takes.

The whole log may be forged, so nothing in it is stored directly: messages, replies, calls, results
and summaries of the main thread are extracted, and the server writes its own log from them. Rules,
hooks, grants, approvals, answers, costs, senders and ids are dropped.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mainspring.core import events
from mainspring.core.content import (
    Base64Source,
    BlobBlock,
    BlobSource,
    Block,
    DocumentBlock,
    FileSource,
    ImageBlock,
    PlainTextSource,
    RedactedBlock,
    SearchResultBlock,
    TextBlock,
    UrlSource,
    plain_text,
)
from mainspring.core.envelope import Event
from mainspring.runtime.import_sessions.foreign_json import arguments, image, text_block
from mainspring.runtime.import_sessions.source_session import (
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

MAX_TITLE: Final = 512  # characters
_MAX_NAME: Final = 200  # characters
_PDF: Final = "application/pdf"
_NOT_MOVED: Final = "[a file or link was here; it stayed on the other machine]"


def read_conversation(
    log: list[Event], *, thread_id: str, blobs: Mapping[str, bytes]
) -> SourceSession:
    """`blobs` came with the log; no other blobs are used."""
    reader = _Reader(blobs)
    for event in log:
        if event.thread_id == thread_id:
            reader.take(event)
    return reader.session()


@dataclass(slots=True)
class _Reader:
    blobs: Mapping[str, bytes]
    source: SourceSession = field(
        default_factory=lambda: SourceSession(format="mainspring", path="")
    )
    source_reply: SourceReply | None = None
    """The reply that is being received."""
    seqs: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """For each item: its position in the client's log, and its id."""
    callable_ids: set[str] = field(default_factory=set[str])
    """The ids of calls of tools that the agent runs itself."""
    started: set[str] = field(default_factory=set[str])
    failed: set[str] = field(default_factory=set[str])
    """The ids of replies that ended in an error."""
    is_waiting: bool = False

    def take(self, event: Event) -> None:
        match event.payload:
            case events.SessionCreated(title=title) | events.SessionUpdated(title=title):
                self.source.title = title[:MAX_TITLE] if title else self.source.title
            case events.ModelRequestStarted(purpose=None):
                self.source_reply = None
                self._reply(event)
            case events.ModelRequestEnded(purpose=None, is_error=is_error):
                if is_error and self.source_reply is not None:
                    self.failed.add(self.source_reply.id)
                self.source_reply = None
            case events.StatusIdle(stop_reason=stop):
                self.is_waiting = stop.type == "requires_action"
            case events.ToolCallStarted(tool_use_id=call_id):
                self.started.add(call_id)
            case events.MessageWithheld(event_id=withheld):
                items = self.source.main.items
                self.source.main.items = [item for item in items if item.id != withheld]
            case _:
                self._take_content(event)

    def _take_content(self, event: Event) -> None:
        match event.payload:
            case events.AgentMessage(content=content):
                self._reply(event).parts.append(SourceText(plain_text(content)))
            case events.AgentThinking(text=text):
                self._reply(event).parts.append(SourceThinking(text))
            case events.AgentToolUse(name=name, input=tool_input):
                self.callable_ids.add(event.id)
                self._call(event, name, tool_input)
            case (
                events.AgentMcpToolUse(name=name, input=tool_input)
                | events.AgentCustomToolUse(name=name, input=tool_input)
            ):
                self._call(event, name, tool_input)
            case events.UserMessage(content=content):
                self._prompt(event, content, is_person=True)
            case events.ThreadMessageReceived(content=content):
                self._prompt(event, content, is_person=False)
            case events.ContextAdded(text=text):
                self._prompt(event, text_block(text), is_person=False)
            case _:
                self._take_result(event)

    def _take_result(self, event: Event) -> None:
        match event.payload:
            case (
                events.AgentToolResult(tool_use_id=call_id, content=content, is_error=is_error)
                | events.AgentMcpToolResult(
                    mcp_tool_use_id=call_id, content=content, is_error=is_error
                )
                | events.UserCustomToolResult(
                    custom_tool_use_id=call_id, content=content, is_error=is_error
                )
                | events.UserToolResult(tool_use_id=call_id, content=content, is_error=is_error)
            ):
                result = SourceCallResult(
                    id=event.id,
                    time=event.time,
                    content=self._content(content),
                    is_error=is_error,
                )
                self.source.main.results.setdefault(call_id, result)
            case events.ContextCompacted(summary=str(summary), last_seq=last) if summary:
                self._add(
                    event, SourceCompaction(id=event.id, time=event.time, summary=summary), last
                )
            case _:
                pass

    def _call(self, event: Event, name: str, tool_input: dict[str, object]) -> None:
        call = SourceCall(id=event.id, name=name[:_MAX_NAME], input=arguments(tool_input))
        self._reply(event).parts.append(call)

    def _prompt(self, event: Event, content: tuple[Block, ...], *, is_person: bool) -> None:
        self.source_reply = None
        if blocks := self._content(content):
            prompt = SourcePrompt(id=event.id, time=event.time, content=blocks, is_person=is_person)
            self._add(event, prompt)

    def _reply(self, event: Event) -> SourceReply:
        if self.source_reply is None:
            self.source_reply = SourceReply(id=event.id, time=event.time)
            self._add(event, self.source_reply)
        return self.source_reply

    def _add(
        self,
        event: Event,
        item: SourcePrompt | SourceReply | SourceCompaction,
        last_seq: int | None = None,
    ) -> None:
        if isinstance(item, SourceCompaction) and last_seq is not None:
            first_kept = next((id_ for seq, id_ in self.seqs if seq > last_seq), None)
            item = SourceCompaction(
                id=item.id, time=item.time, summary=item.summary, first_kept_id=first_kept
            )
        self.seqs.append((event.seq, item.id))
        self.source.main.items.append(item)

    def session(self) -> SourceSession:
        thread = self.source.main
        for item in thread.items:
            if isinstance(item, SourceReply) and item.id in self.failed:
                item.parts = [part for part in item.parts if self._is_kept(part)]
        last = thread.items[-1] if thread.items else None
        if self.is_waiting and isinstance(last, SourceReply):
            calls = {part.id for part in last.parts if isinstance(part, SourceCall)}
            thread.open_calls = frozenset((calls & self.callable_ids) - self.started)
        return self.source

    def _is_kept(self, part: SourcePart) -> bool:
        return not isinstance(part, SourceCall) or part.id in self.source.main.results

    def _content(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        return tuple(item for block in blocks for item in self._block(block))

    def _block(self, block: Block) -> tuple[Block, ...]:
        match block:
            case TextBlock() | SearchResultBlock() | RedactedBlock():
                return (block,)
            case BlobBlock(hash=digest, preview=preview):
                content = self.blobs.get(digest)
                return text_block(preview if content is None else content.decode(errors="replace"))
            case ImageBlock(source=source):
                media_type, data = self._media(source)
                return image(media_type, data) if data else text_block(_NOT_MOVED)
            case DocumentBlock(source=PlainTextSource() as source, title=title, context=context):
                return (DocumentBlock(source=source, title=title, context=context),)
            case DocumentBlock(source=source, title=title, context=context):
                media_type, data = self._media(source)
                if media_type != _PDF or not data:
                    return text_block(_NOT_MOVED)
                pdf = Base64Source(media_type=media_type, data=data)
                return (DocumentBlock(source=pdf, title=title, context=context),)

    def _media(
        self, source: Base64Source | UrlSource | FileSource | BlobSource | PlainTextSource
    ) -> tuple[str, str]:
        """The media type and base64 content; empty if it did not come with the log."""
        match source:
            case Base64Source(media_type=media_type, data=data):
                return media_type, data
            case BlobSource(hash=digest, media_type=media_type) if digest in self.blobs:
                return media_type, base64.b64encode(self.blobs[digest]).decode()
            case _:
                return "", ""
