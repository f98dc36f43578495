"""Tasks that a worker repeats, or runs after a session: each independent of failures of the
others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import anyio

from mainspring.core.errors import MainspringError, StoreFull, StoreUnavailable

_LOG = logging.getLogger("mainspring.worker")

PeriodicTask: TypeAlias = Callable[[], Awaitable[object]]


async def run_each(session_id: str, *tasks: PeriodicTask) -> None:
    """Run tasks after a run of a session: a broken webhook does not make the run fail.

    Raises: StoreUnavailable, StoreFull: the next run does it.
    """
    for task in tasks:
        try:
            await task()
        except (StoreUnavailable, StoreFull):
            raise
        except Exception:  # noqa: BLE001 (the run itself succeeded)
            _LOG.exception("session %s: a step after its run failed", session_id)


async def repeat(tasks: Sequence[PeriodicTask], seconds: float) -> None:
    while True:
        for task in tasks:
            name = getattr(task, "__qualname__", "a chore")
            try:
                await task()
            except MainspringError as error:
                _LOG.warning("%s: %s; retrying later", name, error)
            except Exception:  # noqa: BLE001 (a broken task must not end the worker)
                _LOG.exception("%s failed; retrying later", name)
        await anyio.sleep(seconds)
