"""The compaction layers that need no model, and the cut points they use: which messages stay,
which ranges may be removed. Pure: each layer proposes overlays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mainspring.core.content import Block, TextBlock
from mainspring.core.events import ContextCompacted
from mainspring.core.model import Assistant, Message, ToolResultBlock, ToolUse
from mainspring.harness.context.conversation_digest import (
    BRIEF,
    DIGEST_HEADING,
    digest,
    earlier_digests,
)
from mainspring.harness.context.messages import drop_result, has_media, message_bytes, result_bytes
from mainspring.harness.context.transcript import SNIPPED_NOTE, Transcript

_REFERENCED_ROUNDS = 4  # older rounds that stay because newer ones mention their names
_SEPARATORS = str.maketrans(dict.fromkeys("\"'`()[]{}<>,;:=", " "))


def first_kept_message(transcript: Transcript, *, rounds: int, max_bytes: int) -> int:
    """Index of the first message to keep: as many of the newest rounds as fit, at least one."""
    messages = transcript.messages
    total = transcript.bytes - sum(map(message_bytes, messages))
    start, round_count = 0, 0
    for index in reversed(range(len(messages))):
        total += message_bytes(messages[index])
        if not isinstance(messages[index], Assistant):
            continue
        if round_count and total > max_bytes:
            break
        start, round_count = index, round_count + 1
        if round_count == rounds:
            break
    return start


def referenced_rounds(transcript: Transcript, upto: int, *, max_bytes: int) -> frozenset[int]:
    """Indices of older rounds that messages after `upto` refer to, by call id or by path.

    Of several rounds with the same path, only the newest: it has the current state.
    """
    if upto < 2:
        return frozenset()  # there is no older round
    mentioned = _mentions(transcript, upto)
    indices: set[int] = set()
    for index in reversed(range(upto - 1)):
        names = set(_names(transcript.messages[index])) & mentioned
        if not names:
            continue
        mentioned -= names
        max_bytes -= sum(map(message_bytes, transcript.messages[index : index + 2]))
        if max_bytes < 0 or len(indices) >= 2 * _REFERENCED_ROUNDS:
            break
        indices |= {index, index + 1}
    return frozenset(indices)


def removable_ranges(first: int, upto: int, kept_indices: frozenset[int]) -> list[range]:
    """The ranges in `first..upto` between the messages to keep."""
    ranges: list[range] = []
    start = first
    for index in range(first, upto + 1):
        if index == upto or index in kept_indices:
            if index > start:
                ranges.append(range(start, index))
            start = index + 1
    return ranges


def _mentions(transcript: Transcript, upto: int) -> set[str]:
    texts = [block.text for block in transcript.open_words if isinstance(block, TextBlock)]
    words: set[str] = set()
    for message in transcript.messages[upto:]:
        words.update(_names(message))
        texts += [part.text for part in message.content if isinstance(part, TextBlock)]
    for text in texts:
        ends = (text[:_MENTION_CHARS], text[_MENTION_CHARS:][-_MENTION_CHARS:])
        for end in ends:
            words.update(word.strip(".!?") for word in end.translate(_SEPARATORS).split())
    return words


_MENTION_CHARS = 50_000
"""Characters at both ends of a text in which people refer to something: each takes 0.2 us, in every
layer of every try, while the event loop waits."""


def _names(message: Message) -> Iterator[str]:
    """What later messages may refer to: the ids of a round's calls and the paths in them."""
    for part in message.content:
        if isinstance(part, ToolUse):
            yield part.id
            yield from (text for text in _strings(part.input) if _is_path(text))


def _strings(args: Mapping[str, object]) -> Iterator[str]:
    return (value for value in args.values() if isinstance(value, str))


def _is_path(text: str) -> bool:
    is_one_word = 3 < len(text) < 300 and not any(map(str.isspace, text))
    return is_one_word and ("/" in text or "." in text[1:-1])


def results(transcript: Transcript) -> dict[str, ToolResultBlock]:
    """Every result in the context, by call."""
    by_call = {
        part.tool_use_id: part
        for message in transcript.messages
        for part in message.content
        if isinstance(part, ToolResultBlock)
    }
    by_call.update((result.tool_use_id, result) for result in transcript.open_results)
    return by_call


_KEPT_RUNS = 2  # finished tasks that stay, the newest ones
_MIN_GAIN_BYTES = 400
"""Freeing less is not worth the loss of the prompt cache."""


@dataclass(frozen=True)
class CompactionInput:
    """A conversation, and how much of it to remove."""

    transcript: Transcript
    excess_bytes: int
    rounds: int
    """How many of the newest results stay unchanged."""
    recent_bytes: int
    """If they are larger than this together, only the newest one stays."""

    @cached_property
    def upto(self) -> int:
        """Index of the first message that no layer changes."""
        return first_kept_message(self.transcript, rounds=self.rounds, max_bytes=self.recent_bytes)

    @cached_property
    def kept_rounds(self) -> frozenset[int]:
        return referenced_rounds(self.transcript, self.upto, max_bytes=self.recent_bytes // 2)

    @cached_property
    def pinned(self) -> frozenset[Block]:
        return frozenset(self.transcript.pins.blocks())

    @cached_property
    def results(self) -> Mapping[str, ToolResultBlock]:
        return results(self.transcript)

    @cached_property
    def sizes(self) -> Sequence[int]:
        return [message_bytes(message) for message in self.transcript.messages]

    def span(self, stretch: range) -> tuple[int, int]:
        spans = self.transcript.spans
        return spans[stretch.start][0], spans[stretch.stop - 1][1]


def limit_results(transcript: Transcript, max_bytes: int) -> list[ContextCompacted]:
    """Layer 0: shorten the results of the newest round, which the model has not seen, to one limit.

    The largest are shortened first, all to the same size.
    """
    last = transcript.messages[-1] if transcript.messages else None
    parts = () if last is None or isinstance(last, Assistant) else last.content
    # results that no model has answered, even if they were sent
    results = [part for part in parts if isinstance(part, ToolResultBlock)]
    sizes = {
        result.tool_use_id: result_bytes(result.content)
        for result in (*results, *transcript.open_results)
    }
    if sum(sizes.values()) <= max_bytes:
        return []
    level, bytes_left = 0, max_bytes
    ordered = sorted(sizes.values())
    for index, size in enumerate(ordered):
        level = bytes_left // (len(ordered) - index)
        if size > level:
            break
        bytes_left -= size
    over = tuple(call_id for call_id, size in sizes.items() if size > level)
    kept_bytes = max(0, level - _MIN_GAIN_BYTES)
    return [ContextCompacted(layer="results", dropped_event_ids=over, kept_bytes=kept_bytes)]


def drop_finished_tasks(source: CompactionInput) -> list[ContextCompacted]:
    """Layer 1: remove finished tasks completely, except summaries of earlier compactions."""
    end = 0
    for seq in source.transcript.finished[:-_KEPT_RUNS]:
        reached = sum(last <= seq for _, last in source.transcript.spans[: source.upto])
        end = max(end, reached)
        if sum(source.sizes[:end]) >= source.excess_bytes:
            break
    overlays: list[ContextCompacted] = []
    earlier_texts = [
        text.replace(SNIPPED_NOTE, "").strip()
        for text in earlier_digests(source.transcript.messages[:1])
    ]
    for stretch in removable_ranges(0, end, source.kept_rounds):
        summary = None if stretch.start else "\n\n".join([*earlier_texts, SNIPPED_NOTE])
        overlays += _replacements(source, stretch, "snip", summary)
    return overlays


def drop_old_results(source: CompactionInput) -> list[ContextCompacted]:
    """Layer 2: remove old results, but not their calls."""
    freed = 0
    ids: list[str] = []
    for index in range(source.upto):
        if index in source.kept_rounds:
            continue
        for part in source.transcript.messages[index].content:
            if isinstance(part, ToolResultBlock) and freed < source.excess_bytes:
                gain = result_bytes(part.content) - result_bytes(drop_result(part).content)
                if gain >= _MIN_GAIN_BYTES:
                    freed += gain
                    ids.append(part.tool_use_id)
    return [ContextCompacted(layer="micro", dropped_event_ids=tuple(ids))] if ids else []


def collapse_rounds(source: CompactionInput) -> list[ContextCompacted]:
    """Layer 3: replace old rounds by one line each. The first message has nothing to collapse."""
    overlays: list[ContextCompacted] = []
    freed, goal_bytes = 0, max(source.excess_bytes, source.transcript.bytes // 10)
    for stretch in removable_ranges(1, source.upto, source.kept_rounds):
        lines: list[str] = []
        end = stretch.start
        for start, stop in _rounds(source, stretch):
            if freed >= goal_bytes:
                break
            round_lines = digest(
                source.transcript.messages[start:stop],
                source.results,
                pinned=source.pinned,
                detail=BRIEF,
            )
            lines += round_lines
            freed += sum(source.sizes[start:stop]) - len("\n".join(round_lines).encode())
            end = stop
        if end > stretch.start:
            summary = DIGEST_HEADING + "\n".join(lines)
            overlays += _replacements(source, range(stretch.start, end), "collapse", summary)
    return overlays


def drop_media(source: CompactionInput, *, with_newest: bool) -> list[ContextCompacted]:
    """Remove images and documents: the old ones, or all."""
    messages = source.transcript.messages
    indices = [index for index, message in enumerate(messages) if has_media(message)]
    if not with_newest:
        indices = [index for index in indices if index < source.upto] or indices[:-1]
    if not indices:
        return []
    first, last = source.span(range(indices[0], indices[-1] + 1))
    return [ContextCompacted(layer="media", first_seq=first, last_seq=last)]


def _rounds(source: CompactionInput, stretch: range) -> list[tuple[int, int]]:
    """Split a range into parts that can be removed separately; each begins with a model message."""
    starts = [
        index for index in stretch if isinstance(source.transcript.messages[index], Assistant)
    ]
    return list(zip(starts, [*starts[1:], stretch.stop], strict=True))


def _replacements(
    source: CompactionInput,
    stretch: range,
    layer: Literal["snip", "collapse"],
    summary: str | None,
) -> list[ContextCompacted]:
    gain = sum(source.sizes[stretch.start : stretch.stop]) - len((summary or "").encode())
    if gain < _MIN_GAIN_BYTES:
        return []
    first, last = source.span(stretch)
    return [ContextCompacted(layer=layer, first_seq=first, last_seq=last, summary=summary)]
