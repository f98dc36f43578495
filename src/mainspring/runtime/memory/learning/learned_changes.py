"""What a session has taught, from its log: the memories that it changed, and what a model wanted to
change and may not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct

from mainspring.core.envelope import Event, event_types
from mainspring.core.events import MemoryExtracted, MemoryLearned, MemoryWritten

LEARNED_TYPES = event_types(MemoryWritten, MemoryExtracted, MemoryLearned)
REFUSED = "refused"


class LearnedView(Struct, frozen=True, kw_only=True):
    time: datetime
    change: str
    """`created`, `modified` or `deleted`; or `refused`."""
    memory: str
    """Its scope and path; of a refused change, the change."""
    version: str
    reason: str


def learned_views(log: Iterable[Event]) -> list[LearnedView]:
    return [view for event in log for view in _views(event)]


def _views(event: Event) -> Iterator[LearnedView]:
    match event.payload:
        case MemoryWritten() as written:
            yield LearnedView(
                time=event.time,
                change=written.operation,
                memory=f"{written.store_id}/{written.path}",
                version=written.version or "",
                reason=written.reason or "",
            )
        case MemoryExtracted(refused=refused) | MemoryLearned(refused=refused):
            for item in refused:
                yield LearnedView(
                    time=event.time,
                    change=REFUSED,
                    memory=item.operation,
                    version="",
                    reason=item.problem,
                )
        case _:
            return
