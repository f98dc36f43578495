"""The conversation as the model sees it, built event by event. Grows at its end only, but for
compactions, which are overlays: the events stay, the transcript reads them otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from mainspring.core import model
from mainspring.core.content import Block, DocumentBlock, ImageBlock, TextBlock, plain_text
from mainspring.core.events import AgentThinking, ContextCompacted, Usage
from mainspring.core.model import Assistant, Message, Thinking, ToolResult, ToolUse, User

Part: TypeAlias = TextBlock | Thinking | ToolUse

DROPPED = "[An older result was removed to save space; history_search finds it.]"
_MEDIA_BYTES = 6_000
"""What an image or a document counts for: about 1,600 tokens."""
_FRAME_BYTES = 24
"""What a block costs around its text."""


class Transcript:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        """Closed: these do not change any more, except by a compaction."""
        self.spans: list[tuple[int, int]] = []
        """First and last seq of each message."""
        self.is_answered = True
        self._parts: list[Part] = []
        self._begun = 0
        self._asked: list[str] = []
        self._results: dict[str, ToolResult] = {}
        self._said: list[Block] = []
        self._first_open = 0
        self._counted_tokens: int | None = None
        self._uncounted_bytes = 0

    # --- what comes in -----------------------------------------------------------------------

    def add_user(self, seq: int, content: Sequence[Block]) -> None:
        self._open(seq)
        self._said += content
        self._uncounted_bytes += sum(map(_size, content))

    def add_system(self, seq: int, content: tuple[Block, ...]) -> None:
        self.add_note(seq, plain_text(content))

    def add_note(self, seq: int, text: str) -> None:
        """Words of the system's own, told apart from the user's."""
        self.add_user(seq, (TextBlock(f"<system-note>\n{text}\n</system-note>"),))

    def add_result(
        self, seq: int, call_id: str, content: tuple[Block, ...], is_error: bool
    ) -> None:
        self._open(seq)
        self._results[call_id] = ToolResult(tool_use_id=call_id, content=content, is_error=is_error)
        self._uncounted_bytes += sum(map(_size, content)) + len(call_id)

    def begin_reply(self, seq: int) -> None:
        """Close the user's turn: results in the order asked, then what was said."""
        results = [self._results[call_id] for call_id in self._asked if call_id in self._results]
        content = (*results, *self._said)
        if content:
            if self.messages and isinstance(last := self.messages[-1], User):
                self.messages[-1] = User((*last.content, *content))
                self.spans[-1] = (self.spans[-1][0], seq)
            else:
                self._close(User(content), self._first_open, seq)
        self._asked, self._results, self._said, self._first_open = [], {}, [], 0
        self._parts, self._begun = [], seq

    def add_text(self, _seq: int, content: Sequence[Block]) -> None:
        self._parts += [block for block in content if isinstance(block, TextBlock)]

    def add_thinking(self, _seq: int, thinking: AgentThinking) -> None:
        self._parts.append(Thinking(text=thinking.text, signature=thinking.signature))

    def add_tool_use(self, _seq: int, call_id: str, name: str, given: dict[str, object]) -> None:
        self._parts.append(ToolUse(id=call_id, name=name, input=given))
        self._asked.append(call_id)

    def end_reply(self, seq: int, *, is_error: bool) -> None:
        if self._parts:
            self._close(Assistant(tuple(self._parts)), self._begun, seq)
        self._parts = []
        if not is_error:
            self.is_answered = True

    def measured(self, usage: Usage) -> None:
        """What the provider counted replaces what was estimated."""
        self._counted_tokens = (
            usage.input_tokens
            + usage.cache_creation_input_tokens
            + usage.cache_read_input_tokens
            + usage.output_tokens
        )
        self._uncounted_bytes = 0

    # --- what it amounts to ------------------------------------------------------------------

    def tokens(self, *, prefix_bytes: int, bytes_per_token: float) -> int:
        """Input tokens of the next request, leaning high."""
        if self._counted_tokens is None:
            return int((prefix_bytes + self._uncounted_bytes) / bytes_per_token) + 1
        return self._counted_tokens + int(self._uncounted_bytes / bytes_per_token) + 1

    # --- compaction --------------------------------------------------------------------------

    def compact(self, overlay: ContextCompacted) -> None:
        if overlay.dropped_event_ids:
            dropped = frozenset(overlay.dropped_event_ids)
            self.messages = [_without_results(message, dropped) for message in self.messages]
        if overlay.first_seq is not None and overlay.last_seq is not None:
            self._replace(overlay.first_seq, overlay.last_seq, overlay.summary or "")
        self._counted_tokens = None
        self._uncounted_bytes = sum(map(_message_size, self.messages)) + sum(map(_size, self._said))

    def _replace(self, first_seq: int, last_seq: int, summary: str) -> None:
        inside = [
            index
            for index, (first, last) in enumerate(self.spans)
            if first_seq <= first and last <= last_seq
        ]
        if not inside:
            return
        start, end = inside[0], inside[-1] + 1
        content: tuple[Block | ToolResult, ...] = (TextBlock(summary),) if summary else ()
        span = (self.spans[start][0], self.spans[end - 1][1])
        if start > 0 and isinstance(before := self.messages[start - 1], User):
            start, content = start - 1, (*before.content, *content)
            span = (self.spans[start][0], span[1])
        if end < len(self.messages) and isinstance(after := self.messages[end], User):
            content = (*content, *after.content)
            span = (span[0], self.spans[end][1])
            end += 1
        self.messages[start:end] = [User(content)] if content else []
        self.spans[start:end] = [span] if content else []

    # --- how it is done ----------------------------------------------------------------------

    def _open(self, seq: int) -> None:
        self.is_answered = False
        self._first_open = self._first_open or seq

    def _close(self, message: Message, first: int, last: int) -> None:
        self.messages.append(message)
        self.spans.append((first, last))


def _without_results(message: Message, dropped: frozenset[str]) -> Message:
    if isinstance(message, Assistant) or not any(
        isinstance(part, ToolResult) and part.tool_use_id in dropped for part in message.content
    ):
        return message
    return User(
        tuple(
            ToolResult(
                tool_use_id=part.tool_use_id,
                content=(TextBlock(DROPPED),),
                is_error=part.is_error,
            )
            if isinstance(part, ToolResult) and part.tool_use_id in dropped
            else part
            for part in message.content
        )
    )


def _size(block: Block) -> int:
    match block:
        case ImageBlock() | DocumentBlock():
            return _MEDIA_BYTES
        case _:
            return len(plain_text((block,)).encode()) + _FRAME_BYTES


def _message_size(message: Message) -> int:
    total = 0
    for part in message.content:
        match part:
            case model.ToolResult(content=content):
                total += sum(map(_size, content)) + _FRAME_BYTES
            case model.ToolUse(name=name, input=given):
                total += len(name) + len(str(given)) + _FRAME_BYTES
            case model.Thinking(text=text):
                total += len(text.encode()) + _FRAME_BYTES
            case _:
                total += _size(part)
    return total
