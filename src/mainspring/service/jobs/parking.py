"""Parking: a session whose wakes keep failing is no longer run, and shows the reason.

Runs that raise are counted here, in the store's tallies; runs that die with their process are
counted by the harness, in the log (`recovery_exhausted`). Neither sees the failures of the other.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import (
    LeaseHeld,
    MainspringError,
    NotFound,
    StaleVersion,
    StoreCorrupt,
    StoreUnavailable,
)
from mainspring.core.events import (
    ErrorDetail,
    RetryStatus,
    SessionFailed,
    StatusIdle,
    StopReason,
    UserMessage,
)
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.harness.tool_calls.crash_recovery import closing_events, recovery_events
from mainspring.log.records import RecordQuery
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.service.jobs.dispatcher import ATTEMPTS, Dispatcher, Job, backoff_seconds
from mainspring.service.storage.repository import Repository

AfterParking: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Called with tenant and session after a session is parked, while it is held, as after a run."""

_LOG = logging.getLogger("mainspring.worker")
KIND = "parked"
WAKE_TASK = "wake"
_MAX_PARKED = 10_000  # of all tenants
_MESSAGES = frozenset({str(UserMessage.__struct_config__.tag)})


class ParkedSession(Struct, frozen=True, kw_only=True):
    id: str
    """The id of the session."""
    reason: str
    failures: int
    parked_at: datetime
    is_told: bool
    """Whether the reason could be written to the log."""
    position: int = 0
    """The position of the last item in its inbox at that time."""
    type: Literal["parked_session"] = "parked_session"


async def _ignore_parking(_tenant: str, _session_id: str) -> None:
    pass


class Parking:
    def __init__(
        self, log: SessionLog, dispatcher: Dispatcher, *, clock: Clock = clocks.now
    ) -> None:
        self.after: AfterParking = _ignore_parking
        self._log = log
        self._records = log.store.records
        self._repository = Repository(self._records, KIND, ParkedSession, clock=clock)
        self.get = self._repository.get
        self.page = self._repository.page
        self._dispatcher = dispatcher
        self._clock = clock

    async def unpark(self, tenant: str, session_id: str) -> None:
        """Run it again, with a new count of failures.

        Raises: NotFound: it is not parked.
        """
        await self._repository.remove(tenant, session_id)
        await self._dispatcher.put(Job(task=WAKE_TASK, key=session_id, tenant=tenant))

    async def ids(self) -> frozenset[str]:
        """Parked sessions of all tenants."""
        rows = await self._records.list(RecordQuery(kind=KIND, limit=_MAX_PARKED))
        return frozenset(item.id for item in rows)

    async def is_parked(self, job: Job) -> bool:
        """Whether its session is parked, and no later message has arrived to unpark it."""
        try:
            parked = await self._repository.find(job.tenant, job.key)
        except StoreCorrupt as error:  # still parked; unparking removes it unread
            _LOG.error("%s", error)
            return True
        if parked is None:
            return False
        messages = await self._log.store.pending(
            job.key, after=parked.position, types=_MESSAGES, limit=1
        )
        if not messages:
            return True
        await self.forget(job)
        return False

    async def failed(self, job: Job, error: Exception) -> None:
        """Wake it again later or, after too many failures in a row, park it."""
        [failures] = await self._records.tally([(_failure_counter(job), 1)])
        if failures < ATTEMPTS:
            retry_at = self._clock() + timedelta(seconds=backoff_seconds(failures))
            await self._dispatcher.put(job, at=retry_at)
            return
        await self._park(job, reason_of(error), failures)

    async def succeeded(self, job: Job) -> None:
        [failures] = await self._records.tally([(_failure_counter(job), 0)])
        if failures:
            await self._records.forget_tallies(_failure_counter(job))

    async def forget(self, job: Job) -> None:
        """Forget the failures of a session that runs again or no longer exists."""
        await self._records.forget_tallies(_failure_counter(job))
        with suppress(NotFound, StaleVersion):
            await self._repository.remove(job.tenant, job.key)

    async def _park(self, job: Job, reason: str, failures: int) -> None:
        pending = await self._log.store.pending(job.key)
        parked = ParkedSession(
            id=job.key,
            reason=reason,
            failures=failures,
            parked_at=self._clock(),
            is_told=await self._write_to_log(job, reason, failures),
            position=max((item.position for item in pending), default=0),
        )
        await self._records.forget_tallies(_failure_counter(job))
        await self._repository.save(job.tenant, parked)

    async def _write_to_log(self, job: Job, reason: str, failures: int) -> bool:
        """Write the reason to the log, after the inbox; returns whether that was possible.

        Raises: LeaseHeld: another worker runs it. StoreUnavailable.
        """
        try:
            async with hold_session(self._log, job.key) as writer:
                await self._close(writer, reason, failures)
                await self._run_after_parking(job)
        except (LeaseHeld, StoreUnavailable):
            raise
        except Exception:  # noqa: BLE001 (the log itself may be the cause of the failures)
            return False
        return True

    async def _run_after_parking(self, job: Job) -> None:
        try:
            await self.after(job.tenant, job.key)
        except Exception:  # noqa: BLE001 (the log has the failure; the next run reports it)
            _LOG.exception(
                "session %s was parked, but other parts of the service could not be informed",
                job.key,
            )

    async def _close(self, writer: Writer, reason: str, failures: int) -> None:
        """Append the events that end all threads and report the failure."""
        thread_tree = ThreadTree.of(await self._log.read(writer.session_id), writer.thread_id)
        for event in await writer.stage_inbox(thread_tree.addressee):
            thread_tree.apply(event)
        for member in thread_tree.nodes.values():
            thread = member.thread
            if member is not thread_tree.main and (thread.running or thread.unsettled_calls()):
                writer.stage(*closing_events(thread), thread_id=thread.id)
        error = ErrorDetail(
            type="unknown_error",
            message=f"{reason}; tried {failures} times. Send a message to try again.",
            retry_status=RetryStatus(type="exhausted"),
        )
        await writer.append(
            *recovery_events(thread_tree.main.thread, lambda _: "report"),
            SessionFailed(error=error),
            StatusIdle(
                stop_reason=StopReason(type="retries_exhausted"), reason="parked", detail=reason
            ),
        )


def reason_of(error: Exception) -> str:
    """The reason for people: our own errors explain themselves; the text of others may contain a
    secret."""
    if isinstance(error, MainspringError):
        return str(error)
    return f"{type(error).__name__}; see the worker's log at level debug"


def _failure_counter(job: Job) -> str:
    return f"failed_wakes/{job.key}/"
