"""How deployments are kept: with what is planned for each, and changed together with what tells
of the change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.clock import Clock
from mainspring.core.errors import StaleVersion
from mainspring.core.ids import stable_id
from mainspring.log.records import RecordChange, Records
from mainspring.service.jobs.dispatcher import Job, PutJob
from mainspring.service.schedules.cron import (
    jitter,
    latest_fire_times,
    next_fire_time,
    select_missed,
)
from mainspring.service.schedules.deployment_types import (
    Deployment,
    DeploymentResource,
    RepositoryReference,
)
from mainspring.service.sessions.resource_types import (
    RepositoryResourceParams,
    ResourceParams,
    repository_name,
)
from mainspring.service.storage.notifications import Notification
from mainspring.service.storage.repository import IndexColumns, Repository, Seal
from mainspring.service.webhooks.webhook_outbox import Outbox

DEPLOYMENT_KIND = "deployment"
FIRE_TASK = "fire"
"""The task of a job."""
ResourceTokens: TypeAlias = dict[int, str]
_TRIES = 8
_MAX_QUEUE = 100


class PlannedRun(Struct, frozen=True, kw_only=True):
    """A run that is to be."""

    run_id: str
    scheduled_at: datetime | None = None
    """`None`: somebody asked for it."""


class StoredDeployment(Struct, frozen=True, kw_only=True):
    deployment: Deployment
    decided_upto: datetime
    """What was to fire by then is in the queue, or has been, or was left out."""
    queue: tuple[PlannedRun, ...] = ()
    next_at: datetime | None = None
    """When it is to be looked after again."""
    last_session_id: str | None = None
    """Of the last scheduled run that started one."""

    @property
    def id(self) -> str:
        return self.deployment.id

    @property
    def is_scheduled(self) -> bool:
        """Whether it fires by itself."""
        deployment = self.deployment
        return (
            deployment.schedule is not None
            and deployment.status == "active"
            and deployment.archived_at is None
        )


def with_next_time(stored: StoredDeployment, *, now: datetime) -> StoredDeployment:
    """With the time when something is to be done next."""
    schedule = stored.deployment.schedule
    if stored.queue:
        return replace(stored, next_at=now)
    if schedule is None or not stored.is_scheduled:
        return replace(stored, next_at=None)
    fire = next_fire_time(schedule.cron, stored.decided_upto)
    return replace(
        stored,
        next_at=None if fire is None else fire + jitter(schedule.cron, stored.id),
    )


def with_due_runs(stored: StoredDeployment, *, now: datetime) -> StoredDeployment:
    """With what has become due since in the queue, as far as it is to happen."""
    schedule = stored.deployment.schedule
    if schedule is None or not stored.is_scheduled:
        return stored
    cron = schedule.cron
    upto = now - jitter(cron, stored.id)
    if upto <= stored.decided_upto:
        return stored
    due = latest_fire_times(cron, stored.decided_upto, upto, cron.policy.max_missed)
    if not due:
        return stored
    fires = (scheduled_run(stored.id, at) for at in select_missed(cron.policy, due, now=upto))
    return replace(stored, queue=(*stored.queue, *fires)[-_MAX_QUEUE:], decided_upto=upto)


def scheduled_run(deployment_id: str, at: datetime) -> PlannedRun:
    """Its id follows from its time, so that however often it is tried, it is one run."""
    return PlannedRun(run_id=stable_id("drun", deployment_id, at.isoformat()), scheduled_at=at)


def manual_runs(queue: Sequence[PlannedRun]) -> tuple[PlannedRun, ...]:
    """Only what somebody asked for."""
    return tuple(item for item in queue if item.scheduled_at is None)


class DeploymentStore:
    def __init__(
        self, records: Records, *, outbox: Outbox, seal: Seal, put: PutJob, clock: Clock
    ) -> None:
        self.records = records
        self.repository = Repository(
            records, DEPLOYMENT_KIND, StoredDeployment, columns=_index_columns, clock=clock
        )
        self.outbox = outbox
        self._seal = seal
        self._put = put
        self._clock = clock

    async def get(self, tenant: str, deployment_id: str) -> StoredDeployment:
        return await self.repository.get(tenant, deployment_id)

    async def add(
        self,
        tenant: str,
        deployment: Deployment,
        resource_tokens: ResourceTokens,
        *,
        notification: Notification,
    ) -> StoredDeployment:
        now = self._clock()
        kept = with_next_time(StoredDeployment(deployment=deployment, decided_upto=now), now=now)
        telling = await self.outbox.prepare_changes(notification)
        sealed = self._seal_tokens(tenant, kept.id, resource_tokens)
        await self.records.write(self.repository.put_change(tenant, kept, content=sealed), *telling)
        await self.outbox.enqueue_deliveries(telling)
        await self.put_next(tenant, kept)
        return kept

    async def change(
        self,
        tenant: str,
        deployment_id: str,
        change: Callable[[StoredDeployment], StoredDeployment],
        *,
        notifications: Sequence[Notification] = (),
        also: Sequence[RecordChange] = (),
        resource_tokens: ResourceTokens | None = None,
    ) -> StoredDeployment:
        """Change it, and write what else there is, all or nothing. Say `put_next` then, unless you
        go on with it yourself.

        Raises: NotFound, what `change` raises, and AlreadyThere for what else there is.
        """
        for _ in range(_TRIES):
            record = await self.repository.record(tenant, deployment_id)
            current, now = self.repository.read(record), self._clock()
            made = with_next_time(change(current), now=now)
            sealed = (
                None
                if resource_tokens is None
                else self._seal_tokens(tenant, made.id, resource_tokens)
            )
            telling = await self.outbox.prepare_changes(*notifications)
            replacing = self.repository.replace_change(record, made, content=sealed)
            try:
                await self.records.write(replacing, *also, *telling)
            except StaleVersion:
                continue
            await self.outbox.enqueue_deliveries(telling)
            return made
        raise StaleVersion(f"{DEPLOYMENT_KIND} {deployment_id}: others kept changing it; try again")

    async def resources(self, tenant: str, stored: StoredDeployment) -> tuple[ResourceParams, ...]:
        """With their tokens, for who starts a session."""
        sealed = await self.records.content(DEPLOYMENT_KIND, stored.id)
        plain = self._seal.unseal(sealed, _context(tenant, stored.id))
        tokens = msgspec.json.decode(plain, type=ResourceTokens)
        return tuple(
            RepositoryResourceParams(
                url=each.url,
                checkout=each.checkout,
                mount_path=each.mount_path,
                authorization_token=tokens.get(index),
            )
            if isinstance(each, RepositoryReference)
            else each
            for index, each in enumerate(stored.deployment.resources)
        )

    async def put_next(self, tenant: str, stored: StoredDeployment) -> None:
        """Have it looked after when there is something to do."""
        if stored.next_at is not None:
            await self.put_job(tenant, stored.id, at=stored.next_at)

    async def put_job(self, tenant: str, deployment_id: str, *, at: datetime | None = None) -> None:
        await self._put(Job(task=FIRE_TASK, key=deployment_id, tenant=tenant), at=at)

    def _seal_tokens(
        self, tenant: str, deployment_id: str, resource_tokens: ResourceTokens
    ) -> bytes:
        return self._seal.seal(
            msgspec.json.encode(resource_tokens), _context(tenant, deployment_id)
        )


def split_tokens(
    params: Sequence[ResourceParams],
) -> tuple[tuple[DeploymentResource, ...], ResourceTokens]:
    """What may be shown, and the tokens by the places of their resources.

    Raises: InvalidInput: an address that is none, or has a secret in it.
    """
    for item in params:
        if isinstance(item, RepositoryResourceParams):
            repository_name(item.url)
    tokens: ResourceTokens = {
        index: each.authorization_token
        for index, each in enumerate(params)
        if isinstance(each, RepositoryResourceParams) and each.authorization_token is not None
    }
    shown = (
        RepositoryReference.of(item) if isinstance(item, RepositoryResourceParams) else item
        for item in params
    )
    return tuple(shown), tokens


def _context(tenant: str, deployment_id: str) -> str:
    return f"deployment {tenant} {deployment_id}"


def _index_columns(stored: StoredDeployment) -> IndexColumns:
    deployment = stored.deployment
    return IndexColumns(
        parent=deployment.agent.id,
        label=deployment.status,
        due=stored.next_at,
        is_archived=deployment.archived_at is not None,
    )
