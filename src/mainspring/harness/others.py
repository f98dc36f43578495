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

    def abandon(self, call: OpenCall) -> None:
        return None
