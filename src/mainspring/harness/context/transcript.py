"""The conversation as the model sees it, built event by event. It only grows at its end, except for
compactions, which are overlays: the events stay, and the transcript shows them differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.core.events import AgentThinking, ContextCompacted, Usage
from mainspring.core.model import Assistant, Message, Thinking, ToolResultBlock, ToolUse, User
from mainspring.harness.context.messages import (
    blocks_bytes,
    cut_result,
    drop_result,
    media_placeholder,
    message_bytes,
    result_bytes,
    with_results,
    without_media,
)
from mainspring.harness.context.pins import Pins
from mainspring.harness.limits import prompt_tokens

ReplyPart: TypeAlias = TextBlock | Thinking | ToolUse

# Requests of old logs are rebuilt with these texts, so changing one changes past requests.
PINNED_NOTE = TextBlock("[Kept word for word from earlier in this conversation:]")
BRANCH_RESULT = TextBlock("[Under way; you work on the task below.]")
SNIPPED_NOTE = "[Earlier in this conversation: removed to save space; history_search finds it.]"


class Transcript(Struct, eq=False):
    messages: list[Message] = []
    """Closed messages, which only a compaction can change."""
    spans: list[tuple[int, int]] = []
    """First and last seq of each message."""
    is_answered: bool = True
    pins: Pins = field(default_factory=Pins)
    finished: list[int] = []
    """The seqs at which runs ended that completed their task."""
    bytes: int = 0
    """Its estimated size."""
    _parts: list[ReplyPart] = []
    _begun: int = 0
    _asked: list[str] = []
    _results: dict[str, ToolResultBlock] = {}
    _words: list[Block] = []
    _unasked: int = 0  # how many blocks of the open turn need no answer
    _first_open: int = 0
    _head: int = 0  # how many pinned blocks were inserted into the first message
    _counted_tokens: int | None = None
    _counted_bytes: int = 0

    def add_user(self, seq: int, content: Sequence[Block]) -> None:
        self.pins.add_words(seq, tuple(content))
        self._say(seq, content)

    def withhold(self, seq: int, content: Sequence[Block]) -> None:
        """Remove text that was not sent to the model yet."""
        withheld_ids = {id(block) for block in content}
        self._words = [block for block in self._words if id(block) not in withheld_ids]
        self.bytes -= blocks_bytes(content)
        self.pins.take_back(seq)
        if len(self._words) == self._unasked and not self._results:
            self.is_answered = True

    def last_words(self) -> str:
        """The last text of the model."""
        last = self.messages[-1] if self.messages else None
        parts = last.content if isinstance(last, Assistant) else ()
        return "\n".join(part.text for part in parts if isinstance(part, TextBlock))

    def add_system(self, seq: int, content: tuple[Block, ...]) -> None:
        rule = note_block(plain_text(content))
        self.pins.add_rule(seq, (rule,))
        self._say(seq, (rule,))

    def add_note(self, seq: int, text: str) -> None:
        """A note of the system, marked as such."""
        self._say(seq, (note_block(text),))

    def add_context(self, seq: int, text: str) -> None:
        """A note that is sent with the next message; it needs no answer by itself."""
        is_answered = self.is_answered
        self.add_note(seq, text)
        self._unasked += 1
        self.is_answered = is_answered

    def add_result(
        self, seq: int, call_id: str, content: tuple[Block, ...], is_error: bool
    ) -> None:
        self._open(seq)
        self._results[call_id] = ToolResultBlock(
            tool_use_id=call_id, content=content, is_error=is_error
        )
        self.bytes += result_bytes(content)

    def begin_reply(self, seq: int) -> None:
        """Close the user's turn: results in the order of the calls, then messages."""
        if content := (*self.open_results, *self._words):
            if self.messages and isinstance(last := self.messages[-1], User):
                self.messages[-1] = User((*last.content, *content))
                self.spans[-1] = (self.spans[-1][0], seq)
            else:
                self._close(User(content), self._first_open, seq)
        self.pins.begin()
        self._asked, self._results, self._words, self._first_open = [], {}, [], 0
        self._unasked = 0
        self._parts, self._begun = [], seq

    def add_text(self, content: Sequence[Block]) -> None:
        self._parts += [block for block in content if isinstance(block, TextBlock)]

    def add_thinking(self, thinking: AgentThinking) -> None:
        self._parts.append(Thinking(text=thinking.text, signature=thinking.signature))

    def add_tool_use(self, call_id: str, name: str, args: dict[str, object]) -> None:
        self._parts.append(ToolUse(id=call_id, name=name, input=args))
        self._asked.append(call_id)

    def end_reply(self, seq: int, *, is_error: bool) -> None:
        if self._parts:
            reply = Assistant(tuple(self._parts))
            self._close(reply, self._begun, seq)
            self.bytes += message_bytes(reply)
        self._parts = []
        if not is_error:
            self.is_answered = True

    def apply_usage(self, usage: Usage) -> None:
        """Replace the estimate by the provider's token count."""
        self._counted_tokens = prompt_tokens(usage) + usage.output_tokens
        self._counted_bytes = self.bytes

    def add_import(self, seq: int, note: str | None) -> None:
        """Imported messages: their token counts include the prompt of another tool."""
        self._counted_tokens = None
        if note is not None:
            self.add_context(seq, note)

    def end_run(self, seq: int, *, is_completed: bool) -> None:
        if is_completed:
            self.finished.append(seq)
            self.pins.finish()

    @property
    def open_results(self) -> list[ToolResultBlock]:
        """Results of the newest round that were not sent to the model yet."""
        return [self._results[call_id] for call_id in self._asked if call_id in self._results]

    @property
    def open_words(self) -> list[Block]:
        return [*self._words]

    def upcoming(self) -> list[Message]:
        """The messages of the next request."""
        trial = self.copy()
        trial.begin_reply(0)
        return trial.messages

    def tokens(self, *, prefix_bytes: int, bytes_per_token: float) -> int:
        """A high estimate of the input tokens of the next request."""
        if self._counted_tokens is None:
            return int((prefix_bytes + self.bytes) / bytes_per_token) + 1
        grown = self.bytes - self._counted_bytes
        if grown >= 0:
            return self._counted_tokens + int(grown / bytes_per_token) + 1
        growth = (prefix_bytes + self.bytes) / (prefix_bytes + self._counted_bytes)
        return int(self._counted_tokens * growth) + 1

    def copy(self) -> Transcript:
        """A copy, to try a compaction on."""
        return replace(
            self,
            messages=[*self.messages],
            spans=[*self.spans],
            finished=[*self.finished],
            pins=self.pins.copy(),
            _parts=[*self._parts],
            _asked=[*self._asked],
            _results={**self._results},
            _words=[*self._words],
        )

    def branch(self) -> Transcript:
        """The transcript of a thread that branches off here. Open calls get the same result text in
        every branch, so that all branches share a prompt prefix."""
        twin = self.copy()
        twin.pins = self.pins.branch()
        twin.bytes -= blocks_bytes(self._words)
        twin.bytes -= sum(result_bytes(result.content) for result in self._results.values())
        twin._words, twin._unasked, twin._results = [], 0, {}
        for call_id in twin._asked:
            twin.add_result(self._begun, call_id, (BRANCH_RESULT,), is_error=False)
        return twin

    def compact(self, overlay: ContextCompacted) -> bool:
        """Apply an overlay; true if it changes messages that were sent already."""
        before = [*self.messages]
        self._change_results(overlay)
        if overlay.first_seq is not None and overlay.last_seq is not None:
            if overlay.layer == "media":
                self._drop_media(overlay.first_seq, overlay.last_seq)
            else:
                self._replace(overlay.first_seq, overlay.last_seq, overlay.summary)
        self.bytes = (
            sum(map(message_bytes, self.messages))
            + blocks_bytes(self._words)
            + sum(result_bytes(result.content) for result in self._results.values())
        )
        return len(before) != len(self.messages) or any(
            first is not other for first, other in zip(before, self.messages, strict=True)
        )

    def _change_results(self, overlay: ContextCompacted) -> None:
        ids = frozenset(overlay.dropped_event_ids)
        if not ids:
            return
        kept_bytes = overlay.kept_bytes
        change = drop_result if kept_bytes is None else partial(cut_result, kept_bytes=kept_bytes)
        self.messages = [with_results(message, ids, change) for message in self.messages]
        for call_id in ids & self._results.keys():
            self._results[call_id] = change(self._results[call_id])

    def _drop_media(self, first_seq: int, last_seq: int) -> None:
        self.pins.drop_media(first_seq, last_seq)
        for index, (first, last) in enumerate(self.spans):
            if first_seq <= first and last <= last_seq:
                self.messages[index] = without_media(self.messages[index])
        if self._first_open and first_seq <= self._first_open <= last_seq:
            self._words = list(map(media_placeholder, self._words))

    def _replace(self, first_seq: int, last_seq: int, summary: str | None) -> None:
        """Remove messages. Their replacement goes to the first message, in order."""
        indices = self._inside(first_seq, last_seq)
        if not indices:
            return
        if self._head and isinstance(first := self.messages[0], User):
            self.messages[0] = User(first.content[self._head :])
        gap = self.spans[indices.start][0], self.spans[indices.stop - 1][1]
        is_held = indices.start == 0 or (  # two replies need a message between them
            isinstance(self.messages[indices.start - 1], Assistant)
            and isinstance(self.messages[indices.stop - 1], User)
        )
        del self.messages[indices.start : indices.stop], self.spans[indices.start : indices.stop]
        if is_held:
            self.messages.insert(indices.start, User((TextBlock(summary or SNIPPED_NOTE),)))
            self.spans.insert(indices.start, gap)
        elif summary is not None and isinstance(first := self.messages[0], User):
            self.messages[0] = User((*first.content, TextBlock(summary)))
        self._join(indices.start)
        self._join(indices.start + 1)
        self._restore_pins()

    def _join(self, index: int) -> None:
        """Merge two consecutive user messages."""
        if not 0 < index < len(self.messages):
            return
        before, after = self.messages[index - 1 : index + 1]
        if isinstance(before, User) and isinstance(after, User):
            self.messages[index - 1 : index + 1] = [User((*before.content, *after.content))]
            (first, _), (_, last) = self.spans[index - 1 : index + 1]
            self.spans[index - 1 : index + 1] = [(first, last)]

    def _inside(self, first_seq: int, last_seq: int) -> range:
        """Indices that can be removed without separating a call from its result."""
        inside = [
            index
            for index, (first, last) in enumerate(self.spans)
            if first_seq <= first and last <= last_seq
        ]
        if not inside:
            return range(0)
        start, end = inside[0], inside[-1] + 1
        if start > 0 and _has(self.messages[start], ToolResultBlock):
            start += 1
        if end > start and _has(self.messages[end - 1], ToolUse):
            end -= 1
        return range(start, end)

    def _restore_pins(self) -> None:
        """Insert pinned blocks that are nowhere else at the beginning."""
        present_blocks = {
            part
            for message in self.messages
            if isinstance(message, User)
            for part in message.content
            if not isinstance(part, ToolResultBlock)
        }
        present_blocks.update(self._words)
        missing_blocks = [block for block in self.pins.blocks() if block not in present_blocks]
        head: list[Block] = [PINNED_NOTE, *missing_blocks] if missing_blocks else []
        if isinstance(first := self.messages[0], User):
            self.messages[0] = User((*head, *first.content))
            self._head = len(head)

    def _say(self, seq: int, content: Sequence[Block]) -> None:
        self._open(seq)
        self._words += content
        self.bytes += blocks_bytes(content)

    def _open(self, seq: int) -> None:
        self.is_answered = False
        self._first_open = self._first_open or seq

    def _close(self, message: Message, first: int, last: int) -> None:
        self.messages.append(message)
        self.spans.append((first, last))


def note_block(text: str) -> TextBlock:
    return TextBlock(f"<system-note>\n{text}\n</system-note>")


def _has(message: Message, kind: type[ToolUse | ToolResultBlock]) -> bool:
    return any(isinstance(part, kind) for part in message.content)
