"""The arguments that a program may pass to start and to run a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

import anyio
from anyio import NoEventLoopError

from mainspring.core.model import Delta, Model
from mainspring.core.sender import Origin
from mainspring.runtime.session.history import HistoryMessage
from mainspring.runtime.session.run_result import OnApproval


class StartKeywords(TypedDict, total=False):
    title: str | None
    metadata: Mapping[str, str] | None
    origin: Origin | None
    """Who or what created the session, if not the sender of the runtime."""
    session_id: str | None
    """A retry with the same id does not create a second session."""
    history: Sequence[HistoryMessage]
    """A conversation that the session begins with: messages of `Session.history`, or JSON."""


class RunKeywords(TypedDict, total=False):
    """The arguments of one run."""

    deps: object
    """The value that tools read as `call.deps`."""
    on_approval: OnApproval | None
    """Answers calls that wait for a person, for as long as this process runs. Without it, and after
    a restart without it, the run ends with `requires_action`."""


class RunOnceArguments(RunKeywords, total=False):
    """The arguments of `run` and `arun`."""

    store: str | None
    """A SQLite file or a PostgreSQL URL, instead of the one that the command line uses."""
    model: Model | None
    """Used instead of the agent's model, for tests and demonstrations."""
    emit: Callable[[Delta], None]
    """Called with each delta as it arrives."""
    key: str | None
    """Identifies the session: the same call after a crash continues it, and does nothing twice."""


def is_in_event_loop() -> bool:
    try:
        anyio.get_cancelled_exc_class()
    except NoEventLoopError:
        return False
    return True
