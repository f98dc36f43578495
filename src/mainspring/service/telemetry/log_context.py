"""What the work at hand is about, so that every line of the process's log can say it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_NO_FIELDS: Mapping[str, str] = {}
_LOG_FIELDS: ContextVar[Mapping[str, str]] = ContextVar("mainspring_subject", default=_NO_FIELDS)


def log_fields() -> Mapping[str, str]:
    """`request_id`, `session_id`, `tenant`: those that are known here."""
    return _LOG_FIELDS.get()


@contextmanager
def log_context(**names: str) -> Generator[None]:
    """For the block and the tasks that it starts; adds to what was known before."""
    token = _LOG_FIELDS.set({**_LOG_FIELDS.get(), **names})
    try:
        yield
    finally:
        _LOG_FIELDS.reset(token)
