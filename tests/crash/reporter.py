"""A child's mouth: says what it is about to do, does it, says what came of it. Unbuffered."""

import os
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar, cast

from tests.crash.wire import Acked, Doing, Failed, Line, Refused, SeenEvent, Tried, encoded

from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, LogError, StoreFailed
from mainspring.log.store import InboxItem
from mainspring.log.writer import Writer

T = TypeVar("T")


class Reporter:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._operations = count(1)

    def say(self, line: Line) -> None:
        message = encoded(line)
        while message:
            message = message[os.write(self._descriptor, message) :]

    async def doing(self, doing: Doing, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result, or `None` when the log or the database refused."""
        operation = next(self._operations)
        self.say(Tried(operation=operation, at=time.monotonic_ns(), doing=doing))
        try:
            result = await work()
        except (LogError, InvalidInput) as refused:
            self.say(Refused(operation=operation, error=type(refused).__name__))
        except StoreFailed as failed:
            self.say(Failed(operation=operation, error=f"{type(failed).__name__}: {failed}"))
        else:
            self.say(_acked(operation, time.monotonic_ns(), result))
            return result
        return None


def _acked(operation: int, at: int, result: object) -> Acked:
    match result:
        case Writer():
            return Acked(operation=operation, at=at, epoch=result.lease.epoch)
        case InboxItem():
            return Acked(
                operation=operation, at=at, event_id=result.event_id, position=result.position
            )
        case list():
            events = cast("list[Event]", result)
            seen = tuple(SeenEvent(event.seq, event.id) for event in events)
            return Acked(operation=operation, at=at, seen=seen)
        case _:
            return Acked(operation=operation, at=at)
