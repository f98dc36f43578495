"""What the work at hand is about, so that every line of the process's log can say it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_NOTHING: Mapping[str, str] = {}
_SUBJECT: ContextVar[Mapping[str, str]] = ContextVar("mainspring_subject", default=_NOTHING)


def subject() -> Mapping[str, str]:
    """`request_id`, `session_id`, `tenant`: those that are known here."""
    return _SUBJECT.get()


@contextmanager
def about(**names: str) -> Generator[None]:
    """For the block and the tasks that it starts; adds to what was known before."""
    token = _SUBJECT.set({**_SUBJECT.get(), **names})
    try:
        yield
    finally:
        _SUBJECT.reset(token)
