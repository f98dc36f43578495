"""The layers of compaction that need no model: each looks at a conversation and proposes overlays.

Pure. Oldest first, and no more than is asked for; nothing here decides whether it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mainspring.core.content import Block
from mainspring.core.events import ContextCompacted
from mainspring.core.model import Assistant, ToolResult
from mainspring.harness.context.digest import BRIEF, EARLIER, digest, earlier
from mainspring.harness.context.overlay import dropped, has_media
from mainspring.harness.context.sizes import message_bytes, result_bytes
from mainspring.harness.context.stretches import newest, referred, results, stretches
from mainspring.harness.context.transcript import SNIPPED, Transcript

_RUNS_KEPT = 2
_MIN_GAIN_BYTES = 400
"""Less is not worth the cache that any change costs."""


@dataclass(frozen=True)
class Sheet:
    """A conversation and how much of it should go."""

    transcript: Transcript
    excess_bytes: int
    rounds: int
    """The newest so many stay as they are."""
    recent_bytes: int
    """Unless they are larger than this together; then the newest one."""

    @cached_property
    def upto(self) -> int:
        """Index of the first message that no layer touches."""
        return newest(self.transcript, rounds=self.rounds, max_bytes=self.recent_bytes)

    @cached_property
    def kept(self) -> frozenset[int]:
        return referred(self.transcript, self.upto, max_bytes=self.recent_bytes // 2)

    @cached_property
    def pinned(self) -> frozenset[Block]:
        return frozenset(self.transcript.pins.blocks())

    @cached_property
    def results(self) -> Mapping[str, ToolResult]:
        return results(self.transcript)

    @cached_property
    def sizes(self) -> Sequence[int]:
        return [message_bytes(message) for message in self.transcript.messages]

    def span(self, stretch: range) -> tuple[int, int]:
        spans = self.transcript.spans
        return spans[stretch.start][0], spans[stretch.stop - 1][1]


def limit_results(transcript: Transcript, max_bytes: int) -> list[ContextCompacted]:
    """Layer 0: the newest round's results, which the model has not seen, within one limit.

    The largest give way first, all to the same size.
    """
    sizes = {result.tool_use_id: result_bytes(result.content) for result in _newest(transcript)}
    if sum(sizes.values()) <= max_bytes:
        return []
    level, left = 0, max_bytes
    ordered = sorted(sizes.values())
    for index, size in enumerate(ordered):
        level = left // (len(ordered) - index)
        if size > level:
            break
        left -= size
    over = tuple(call_id for call_id, size in sizes.items() if size > level)
    kept = max(0, level - _MIN_GAIN_BYTES)
    return [ContextCompacted(layer="results", dropped_event_ids=over, kept_bytes=kept)]


def snip(sheet: Sheet) -> list[ContextCompacted]:
    """Layer 1: tasks that are done go, whole; what earlier compactions have told of them stays."""
    end = 0
    for seq in sheet.transcript.finished[:-_RUNS_KEPT]:
        reached = sum(last <= seq for _, last in sheet.transcript.spans[: sheet.upto])
        end = max(end, reached)
        if sum(sheet.sizes[:end]) >= sheet.excess_bytes:
            break
    overlays: list[ContextCompacted] = []
    told = [text.replace(SNIPPED, "").strip() for text in earlier(sheet.transcript.messages[:1])]
    for stretch in stretches(0, end, sheet.kept):
        summary = None if stretch.start else "\n\n".join([*told, SNIPPED])
        overlays += _replaced(sheet, stretch, "snip", summary)
    return overlays


def micro(sheet: Sheet) -> list[ContextCompacted]:
    """Layer 2: old results go, their calls stay."""
    freed = 0
    ids: list[str] = []
    for index in range(sheet.upto):
        if index in sheet.kept:
            continue
        for part in sheet.transcript.messages[index].content:
            if isinstance(part, ToolResult) and freed < sheet.excess_bytes:
                gain = result_bytes(part.content) - result_bytes(dropped(part).content)
                if gain >= _MIN_GAIN_BYTES:
                    freed += gain
                    ids.append(part.tool_use_id)
    return [ContextCompacted(layer="micro", dropped_event_ids=tuple(ids))] if ids else []


def collapse(sheet: Sheet) -> list[ContextCompacted]:
    """Layer 3: old rounds are told in a line each. The first message has nothing to collapse."""
    overlays: list[ContextCompacted] = []
    freed, wanted = 0, max(sheet.excess_bytes, sheet.transcript.bytes // 10)
    for stretch in stretches(1, sheet.upto, sheet.kept):
        lines: list[str] = []
        end = stretch.start
        for start, stop in _rounds(sheet, stretch):
            if freed >= wanted:
                break
            told = digest(
                sheet.transcript.messages[start:stop],
                sheet.results,
                pinned=sheet.pinned,
                detail=BRIEF,
            )
            lines += told
            freed += sum(sheet.sizes[start:stop]) - len("\n".join(told).encode())
            end = stop
        if end > stretch.start:
            summary = EARLIER + "\n".join(lines)
            overlays += _replaced(sheet, range(stretch.start, end), "collapse", summary)
    return overlays


def drop_media(sheet: Sheet, *, with_newest: bool) -> list[ContextCompacted]:
    """Images and documents go: the old ones, or all."""
    messages = sheet.transcript.messages
    found = [index for index, message in enumerate(messages) if has_media(message)]
    if not with_newest:
        found = [index for index in found if index < sheet.upto] or found[:-1]
    if not found:
        return []
    first, last = sheet.span(range(found[0], found[-1] + 1))
    return [ContextCompacted(layer="media", first_seq=first, last_seq=last)]


def _newest(transcript: Transcript) -> list[ToolResult]:
    """Results of the newest round, sent (to a model that did not answer) or not."""
    last = transcript.messages[-1] if transcript.messages else None
    sent = () if last is None or isinstance(last, Assistant) else last.content
    return [part for part in sent if isinstance(part, ToolResult)] + transcript.open_results


def _rounds(sheet: Sheet, stretch: range) -> list[tuple[int, int]]:
    """The stretch in pieces that can be cut out alone: each begins with what the model did."""
    starts = [index for index in stretch if isinstance(sheet.transcript.messages[index], Assistant)]
    return list(zip(starts, [*starts[1:], stretch.stop], strict=True))


def _replaced(
    sheet: Sheet, stretch: range, layer: Literal["snip", "collapse"], summary: str | None
) -> list[ContextCompacted]:
    gain = sum(sheet.sizes[stretch.start : stretch.stop]) - len((summary or "").encode())
    if gain < _MIN_GAIN_BYTES:
        return []
    first, last = sheet.span(stretch)
    return [ContextCompacted(layer=layer, first_seq=first, last_seq=last, summary=summary)]
