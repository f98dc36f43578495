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
from mainspring.core.errors import Stale
from mainspring.core.ids import stable_id
from mainspring.log.records import Change, Records
from mainspring.service.calendar.model import Deployment, Repository, Resource
from mainspring.service.calendar.schedules import chosen, jitter, latest, next_fire
from mainspring.service.keeping.drawer import Drawer, Tabs
from mainspring.service.keeping.notice import Notice
from mainspring.service.keeping.seal import Seal
from mainspring.service.mail.outbox import Outbox
from mainspring.service.sessions.mounted import (
    RepositoryAsked,
    ResourceAsked,
    repository_name,
)
from mainspring.service.work.dispatch import Job
from mainspring.service.work.jobs import PutJob

KIND = "deployment"
FIRE = "fire"
"""The task of a job."""
Tokens: TypeAlias = dict[int, str]
_TRIES = 8
_LONGEST_QUEUE = 100


class Fire(Struct, frozen=True, kw_only=True):
    """A run that is to be."""

    run_id: str
    scheduled_at: datetime | None = None
    """`None`: somebody asked for it."""


class Kept(Struct, frozen=True, kw_only=True):
    deployment: Deployment
    decided_upto: datetime
    """What was to fire by then is in the queue, or has been, or was left out."""
    queue: tuple[Fire, ...] = ()
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


def planned(kept: Kept, *, now: datetime) -> Kept:
    """With the time when something is to be done next."""
    schedule = kept.deployment.schedule
    if kept.queue:
        return replace(kept, next_at=now)
    if schedule is None or not kept.is_scheduled:
        return replace(kept, next_at=None)
    fire = next_fire(schedule.cron, kept.decided_upto)
    return replace(kept, next_at=None if fire is None else fire + jitter(schedule.cron, kept.id))


def decided(kept: Kept, *, now: datetime) -> Kept:
    """With what has become due since in the queue, as far as it is to happen."""
    schedule = kept.deployment.schedule
    if schedule is None or not kept.is_scheduled:
        return kept
    cron = schedule.cron
    upto = now - jitter(cron, kept.id)
    if upto <= kept.decided_upto:
        return kept
    due = latest(cron, kept.decided_upto, upto, cron.policy.max_missed)
    if not due:
        return kept
    fires = (scheduled(kept.id, at) for at in chosen(cron.policy, due, now=upto))
    return replace(kept, queue=(*kept.queue, *fires)[-_LONGEST_QUEUE:], decided_upto=upto)


def scheduled(deployment_id: str, at: datetime) -> Fire:
    """Its id follows from its time, so that however often it is tried, it is one run."""
    return Fire(run_id=stable_id("drun", deployment_id, at.isoformat()), scheduled_at=at)


def unscheduled(queue: Sequence[Fire]) -> tuple[Fire, ...]:
    """Only what somebody asked for."""
    return tuple(each for each in queue if each.scheduled_at is None)


class DeploymentKeep:
    def __init__(
        self, records: Records, *, outbox: Outbox, seal: Seal, put: PutJob, clock: Clock
    ) -> None:
        self.records = records
        self.drawer = Drawer(records, KIND, Kept, tabs=_tabs, clock=clock)
        self.outbox = outbox
        self._seal = seal
        self._put = put
        self._clock = clock

    async def get(self, tenant: str, deployment_id: str) -> Kept:
        return await self.drawer.get(tenant, deployment_id)

    async def add(
        self, tenant: str, deployment: Deployment, tokens: Tokens, *, notice: Notice
    ) -> Kept:
        now = self._clock()
        kept = planned(Kept(deployment=deployment, decided_upto=now), now=now)
        telling = await self.outbox.telling(notice)
        sealed = self._sealed(tenant, kept.id, tokens)
        await self.records.write(self.drawer.putting(tenant, kept, content=sealed), *telling)
        await self.outbox.told(telling)
        await self.put_next(tenant, kept)
        return kept

    async def change(
        self,
        tenant: str,
        deployment_id: str,
        change: Callable[[Kept], Kept],
        *,
        notices: Sequence[Notice] = (),
        also: Sequence[Change] = (),
        tokens: Tokens | None = None,
    ) -> Kept:
        """Change it, and write what else there is, all or nothing. Say `put_next` then, unless you
        go on with it yourself.

        Raises: NotFound, what `change` raises, and AlreadyThere for what else there is.
        """
        for _ in range(_TRIES):
            record = await self.drawer.record(tenant, deployment_id)
            known, now = self.drawer.read(record), self._clock()
            made = planned(change(known), now=now)
            sealed = None if tokens is None else self._sealed(tenant, made.id, tokens)
            telling = await self.outbox.telling(*notices)
            replacing = self.drawer.replacing(record, made, content=sealed)
            try:
                await self.records.write(replacing, *also, *telling)
            except Stale:
                continue
            await self.outbox.told(telling)
            return made
        raise Stale(f"{KIND} {deployment_id}: others kept changing it; try again")

    async def resources(self, tenant: str, kept: Kept) -> tuple[ResourceAsked, ...]:
        """With their tokens, for who starts a session."""
        sealed = await self.records.content(KIND, kept.id)
        plain = self._seal.unseal(sealed, _context(tenant, kept.id))
        tokens = msgspec.json.decode(plain, type=Tokens)
        return tuple(
            RepositoryAsked(
                url=each.url,
                checkout=each.checkout,
                mount_path=each.mount_path,
                authorization_token=tokens.get(index),
            )
            if isinstance(each, Repository)
            else each
            for index, each in enumerate(kept.deployment.resources)
        )

    async def put_next(self, tenant: str, kept: Kept) -> None:
        """Have it looked after when there is something to do."""
        if kept.next_at is not None:
            await self.put_job(tenant, kept.id, at=kept.next_at)

    async def put_job(self, tenant: str, deployment_id: str, *, at: datetime | None = None) -> None:
        await self._put(Job(task=FIRE, key=deployment_id, tenant=tenant), at=at)

    def _sealed(self, tenant: str, deployment_id: str, tokens: Tokens) -> bytes:
        return self._seal.seal(msgspec.json.encode(tokens), _context(tenant, deployment_id))


def parted(asked: Sequence[ResourceAsked]) -> tuple[tuple[Resource, ...], Tokens]:
    """What may be shown, and the tokens by the places of their resources.

    Raises: InvalidInput: an address that is none, or has a secret in it.
    """
    for each in asked:
        if isinstance(each, RepositoryAsked):
            repository_name(each.url)
    tokens: Tokens = {
        index: each.authorization_token
        for index, each in enumerate(asked)
        if isinstance(each, RepositoryAsked) and each.authorization_token is not None
    }
    shown = (Repository.of(each) if isinstance(each, RepositoryAsked) else each for each in asked)
    return tuple(shown), tokens


def _context(tenant: str, deployment_id: str) -> str:
    return f"deployment {tenant} {deployment_id}"


def _tabs(kept: Kept) -> Tabs:
    deployment = kept.deployment
    return Tabs(
        parent=deployment.agent.id,
        label=deployment.status,
        due=kept.next_at,
        is_archived=deployment.archived_at is not None,
    )
