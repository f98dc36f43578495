"""Work items of a self-hosted environment and their state changes. Pure; the work queue stores
them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core.errors import HeartbeatRefused, StaleVersion
from mainspring.service.storage.metadata import Metadata, MetadataPatch
from mainspring.service.storage.repository import IndexColumns

WorkState: TypeAlias = Literal["queued", "starting", "active", "stopping", "stopped"]

NO_HEARTBEAT = "NO_HEARTBEAT"
RECLAIM = timedelta(seconds=5)
"""How long a polled item may stay unacknowledged, unless a poll sets another time."""
_ONE_MICROSECOND = timedelta(microseconds=1)  # the precision of times in the store
_HEALTHY_RUN = timedelta(seconds=30)
"""A worker that held an item for this long did not fail at once."""
_MOST_BACKOFF_SECONDS = 60  # between attempts at one item


class SessionWork(Struct, frozen=True, kw_only=True):
    id: str
    """The id of the session."""
    type: Literal["session"] = "session"


class WorkItem(Struct, frozen=True, kw_only=True):
    id: str
    environment_id: str
    data: SessionWork
    created_at: datetime
    state: WorkState = "queued"
    metadata: Metadata = {}
    acknowledged_at: datetime | None = None
    started_at: datetime | None = None
    latest_heartbeat_at: datetime | None = None
    stop_requested_at: datetime | None = None
    stopped_at: datetime | None = None
    secret: str | None = None
    """The token for the worker; only in the response to its poll, never stored."""
    type: Literal["work"] = "work"


class PollParams(Struct, frozen=True, kw_only=True):
    block_ms: Annotated[int, Meta(ge=1, le=999)] | None = None
    reclaim_older_than_ms: Annotated[int, Meta(ge=0, le=86_400_000)] | None = None

    @property
    def reclaim(self) -> timedelta:
        if self.reclaim_older_than_ms is None:
            return RECLAIM
        return timedelta(milliseconds=self.reclaim_older_than_ms)


class HeartbeatParams(Struct, frozen=True, kw_only=True):
    desired_ttl_seconds: Annotated[int, Meta(ge=1)] | None = None
    expected_last_heartbeat: str | None = None


class StopParams(Struct, frozen=True, kw_only=True):
    force: bool = False


class UpdateWorkItem(Struct, frozen=True, kw_only=True):
    metadata: MetadataPatch


class Heartbeat(Struct, frozen=True, kw_only=True):
    last_heartbeat: str
    lease_extended: bool
    state: WorkState
    ttl_seconds: int
    type: Literal["work_heartbeat"] = "work_heartbeat"


class QueueStats(Struct, frozen=True, kw_only=True):
    depth: int
    pending: int
    oldest_queued_at: datetime | None
    workers_polling: int
    type: Literal["work_queue_stats"] = "work_queue_stats"


class LeaseTimes(Struct, frozen=True, kw_only=True):
    """How long an item belongs to a worker without a heartbeat."""

    start_seconds: int = 120
    """From the acknowledgement to the first heartbeat: a sandbox may have to be created."""
    ttl_seconds: int = 60
    """From one heartbeat to the next; the official worker beats every half of it, or 30 s."""
    most_seconds: int = 3600

    def ttl(self, desired: int | None) -> int:
        return self.ttl_seconds if desired is None else min(desired, self.most_seconds)


class StoredWorkItem(Struct, frozen=True, kw_only=True):
    work: WorkItem
    free_at: datetime | None
    """When it may be handed out, unless there is a heartbeat first; `None`: never again."""
    polled_at: datetime | None = None
    """When it was handed out, if it is not acknowledged yet."""
    ttl_seconds: int = 0
    failures: int = 0
    """How many previous items of the same session ended at once."""

    @property
    def id(self) -> str:
        return self.work.id

    def is_free(self, now: datetime, reclaim: timedelta) -> bool:
        if self.polled_at is not None:
            return self.polled_at + reclaim <= now
        return self.free_at is not None and self.free_at <= now


def index_columns(item: StoredWorkItem) -> IndexColumns:
    """Labelled with its environment until it stops, so that polling skips stopped items."""
    work = item.work
    is_over = work.state == "stopped"
    return IndexColumns(
        parent=work.environment_id,
        name=None if is_over else work.data.id,
        label="" if is_over else work.environment_id,
        due=item.free_at,
        is_archived=is_over,
        created=work.created_at,
    )


def mark_polled(item: StoredWorkItem, now: datetime) -> StoredWorkItem:
    """The item after it was handed out; the state of an earlier worker is cleared."""
    reset = replace(
        item.work, state="queued", acknowledged_at=None, started_at=None, latest_heartbeat_at=None
    )
    return replace(item, work=reset, polled_at=now, free_at=now + RECLAIM)


def acknowledge(item: StoredWorkItem, now: datetime, times: LeaseTimes) -> StoredWorkItem:
    """Raises: StaleVersion: another worker has it, or it has stopped."""
    if item.polled_at is None:
        raise StaleVersion(f"work {item.id} is {item.work.state} and cannot be acknowledged")
    return replace(
        item,
        work=replace(item.work, state="starting", acknowledged_at=now),
        polled_at=None,
        free_at=now + timedelta(seconds=times.start_seconds),
        ttl_seconds=times.start_seconds,
    )


def apply_heartbeat(
    item: StoredWorkItem, now: datetime, params: HeartbeatParams, times: LeaseTimes
) -> StoredWorkItem:
    """The item after a heartbeat; unchanged if it is stopping.

    Raises: HeartbeatRefused: the sender does not hold it.
    """
    work = item.work
    if work.state in ("stopping", "stopped"):
        return item
    last = (
        NO_HEARTBEAT
        if work.latest_heartbeat_at is None
        else heartbeat_token(work.latest_heartbeat_at)
    )
    if work.state == "queued" or params.expected_last_heartbeat not in (None, last):
        raise heartbeat_refusal(item)
    if work.latest_heartbeat_at is not None:
        now = max(now, work.latest_heartbeat_at + _ONE_MICROSECOND)  # each is distinct
    ttl = times.ttl(params.desired_ttl_seconds)
    return replace(
        item,
        work=replace(
            work, state="active", started_at=work.started_at or now, latest_heartbeat_at=now
        ),
        free_at=now + timedelta(seconds=ttl),
        ttl_seconds=ttl,
    )


def heartbeat_reply(item: StoredWorkItem) -> Heartbeat:
    work = item.work
    return Heartbeat(
        last_heartbeat=""
        if work.latest_heartbeat_at is None
        else heartbeat_token(work.latest_heartbeat_at),
        lease_extended=work.state == "active",
        state=work.state,
        ttl_seconds=item.ttl_seconds,
    )


def heartbeat_refusal(item: StoredWorkItem) -> HeartbeatRefused:
    at = item.work.latest_heartbeat_at
    return HeartbeatRefused(
        item.id,
        state=item.work.state,
        last_heartbeat=None if at is None else heartbeat_token(at),
        ttl_seconds=item.ttl_seconds,
    )


def heartbeat_token(moment: datetime) -> str:
    """The token that the worker receives and must echo."""
    return msgspec.to_builtins(moment)


def request_stop(item: StoredWorkItem, now: datetime) -> StoredWorkItem:
    """Request a stop: its worker learns of it with the next heartbeat; without a worker it stops at
    once.

    Raises: StaleVersion: it has already stopped.
    """
    if item.work.state not in ("active", "stopping"):
        return mark_stopped(item, now)
    moment = item.work.stop_requested_at or now
    return replace(item, work=replace(item.work, state="stopping", stop_requested_at=moment))


def mark_stopped(item: StoredWorkItem, now: datetime) -> StoredWorkItem:
    """Raises: StaleVersion: it has already stopped."""
    if item.work.state == "stopped":
        raise StaleVersion(f"work {item.id} has already stopped")
    stopped = replace(
        item.work,
        state="stopped",
        stop_requested_at=item.work.stop_requested_at or now,
        stopped_at=now,
    )
    return replace(item, work=stopped, free_at=None, polled_at=None)


def next_work_item(item: StoredWorkItem, id_: str, now: datetime) -> StoredWorkItem:
    """The next item for a session that has not ended although its item has stopped. With a backoff,
    if workers repeatedly fail at once."""
    acknowledged_at = item.work.acknowledged_at
    is_sound = acknowledged_at is not None and now - acknowledged_at >= _HEALTHY_RUN
    failures = 0 if is_sound else item.failures + 1
    wait = min(2 ** (failures - 1), _MOST_BACKOFF_SECONDS) if failures > 1 else 0
    return replace(
        new_work_item(id_, item.work.environment_id, item.work.data.id, now),
        free_at=now + timedelta(seconds=wait),
        failures=failures,
    )


def new_work_item(id_: str, environment_id: str, session_id: str, now: datetime) -> StoredWorkItem:
    work = WorkItem(
        id=id_, environment_id=environment_id, data=SessionWork(id=session_id), created_at=now
    )
    return StoredWorkItem(work=work, free_at=now)
