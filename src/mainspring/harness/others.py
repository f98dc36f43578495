"""What a thread's loop has to know of the other threads of its session, and may ask of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mainspring.core.envelope import Event
from mainspring.harness.open_call import OpenCall


class Others(Protocol):
    def is_live(self, thread_id: str) -> bool:
        """Whether a thread is being run now, and so listens itself."""
        ...

    def attend(self, events: Iterable[Event]) -> None:
        """A desk has taken in what came from outside: whom does it concern?"""
        ...

    def is_answerable(self, call: OpenCall) -> bool:
        """Whether a thread that this call waits for could go on: somebody has answered it."""
        ...

    def has_called(self, thread_id: str) -> bool:
        """Whether somebody whom this thread has called, and does not wait for, is not done."""
        ...

    async def stay(self, thread_id: str) -> bool:
        """Wait until there may be news for a thread that has nothing to do but hear from those
        whom it has called; False at once, if none of them is at work."""
        ...

    def waiting_below(self, thread_id: str) -> tuple[str, ...]:
        """Calls that people must answer, of those whom this thread has called."""
        ...

    def abandon(self, call: OpenCall) -> None:
        """The call is not waited for any more: what was born of it ends in the log, as it is."""
        ...


class Alone:
    """No other threads."""

    def is_live(self, thread_id: str) -> bool:
        return False

    def attend(self, events: Iterable[Event]) -> None:
        return None

    def is_answerable(self, call: OpenCall) -> bool:
        return False

    def has_called(self, thread_id: str) -> bool:
        return False

    async def stay(self, thread_id: str) -> bool:
        return False

    def waiting_below(self, thread_id: str) -> tuple[str, ...]:
        return ()

    def abandon(self, call: OpenCall) -> None:
        return None
