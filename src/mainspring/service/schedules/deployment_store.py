"""Stored deployments with their planned runs, changed together with the notifications of the
change; and whether their references still exist."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.clock import Clock
from mainspring.core.errors import (
    InvalidInput,
    LogError,
    MainspringError,
    NotFound,
    RateLimited,
    ServiceError,
    StoreFailed,
)
from mainspring.core.ids import stable_id
from mainspring.core.ports import Seal
from mainspring.log.records import RecordChange, RecordRow, Records
from mainspring.service.access.tenants import Tenants
from mainspring.service.jobs.dispatcher import Job, PutJob
from mainspring.service.resources.environments import Environment, SelfHostedConfig
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
    RunError,
    RunErrorType,
)
from mainspring.service.sessions.resource_types import (
    FileResourceParams,
    RepositoryResourceParams,
    ResourceParams,
    StoreResourceParams,
    repository_name,
)
from mainspring.service.storage.metadata import copy_fields
from mainspring.service.storage.repository import IndexColumns, Notification, Repository
from mainspring.service.webhooks.webhook_outbox import Outbox

DEPLOYMENT_KIND = "deployment"
FIRE_TASK = "fire"
"""The task of its jobs."""
ResourceTokens: TypeAlias = dict[int, str]
_MAX_QUEUE = 100  # runs that wait for one deployment


class PlannedRun(Struct, frozen=True, kw_only=True):
    run_id: str
    scheduled_at: datetime | None = None
    """`None`: requested by a person."""


class StoredDeployment(Struct, frozen=True, kw_only=True):
    deployment: Deployment
    decided_upto: datetime
    """All runs scheduled up to this time are decided: queued, done or skipped."""
    queue: tuple[PlannedRun, ...] = ()
    next_at: datetime | None = None
    """When the deployment needs a worker next."""
    last_session_id: str | None = None
    """The session of the last scheduled run that started one."""

    @property
    def id(self) -> str:
        return self.deployment.id

    @property
    def is_scheduled(self) -> bool:
        """Whether its schedule is active."""
        deployment = self.deployment
        return (
            deployment.schedule is not None
            and deployment.status == "active"
            and deployment.archived_at is None
        )


def with_next_time(stored: StoredDeployment, *, now: datetime) -> StoredDeployment:
    """The deployment with its next time set."""
    schedule = stored.deployment.schedule
    if stored.queue:
        return replace(stored, next_at=now)
    if schedule is None or not stored.is_scheduled:
        return replace(stored, next_at=None)
    fire = next_fire_time(schedule.cron, stored.decided_upto)
    return replace(stored, next_at=fire and fire + jitter(schedule.cron, stored.id))


def with_due_runs(stored: StoredDeployment, *, now: datetime) -> StoredDeployment:
    """The deployment with the runs that have become due since, as far as the policy allows."""
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
    """A scheduled run. Its id is derived from its time, so that repeated attempts are one run."""
    return PlannedRun(run_id=stable_id("drun", deployment_id, at.isoformat()), scheduled_at=at)


def manual_runs(queue: Sequence[PlannedRun]) -> tuple[PlannedRun, ...]:
    """Only the requested runs."""
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
        self.get = self.repository.get

    async def add(
        self,
        tenant: str,
        deployment: Deployment,
        resource_tokens: ResourceTokens,
        *,
        notification: Notification,
    ) -> StoredDeployment:
        now = self._clock()
        stored_deployment = with_next_time(
            StoredDeployment(deployment=deployment, decided_upto=now), now=now
        )
        deliveries = await self.outbox.prepare_changes(notification)
        sealed = self._seal_tokens(tenant, stored_deployment.id, resource_tokens)
        change = self.repository.put_change(tenant, stored_deployment, content=sealed)
        await self.records.write(change, *deliveries)
        await self.outbox.enqueue_deliveries(deliveries)
        await self.put_next(tenant, stored_deployment)
        return stored_deployment

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
        """Change it and write `also`, all or nothing. Call `put_next` afterwards, unless you
        continue with it yourself.

        Raises: NotFound, what `change` raises, and AlreadyExists for `also`.
        """
        sealed = None
        if resource_tokens is not None:
            sealed = self._seal_tokens(tenant, deployment_id, resource_tokens)
        deliveries: list[RecordChange] = []

        async def prepare() -> tuple[StoredDeployment, list[RecordChange]]:
            row = await self.repository.row(tenant, deployment_id)
            stored_deployment = with_next_time(change(self.repository.read(row)), now=self._clock())
            deliveries[:] = await self.outbox.prepare_changes(*notifications)
            replacing = self.repository.replace_change(row, stored_deployment, content=sealed)
            return stored_deployment, [replacing, *also, *deliveries]

        stored_deployment = await self.repository.transact(deployment_id, prepare)
        await self.outbox.enqueue_deliveries(deliveries)
        return stored_deployment

    async def resources(self, tenant: str, stored: StoredDeployment) -> tuple[ResourceParams, ...]:
        """The resources with their tokens, to start a session."""
        sealed = await self.records.content(DEPLOYMENT_KIND, stored.id)
        plain = self._seal.unseal(sealed, _context(tenant, stored.id))
        tokens = msgspec.json.decode(plain, type=ResourceTokens)
        return tuple(
            RepositoryResourceParams(
                url=resource.url,
                checkout=resource.checkout,
                mount_path=resource.mount_path,
                authorization_token=tokens.get(index),
            )
            if isinstance(resource, RepositoryReference)
            else resource
            for index, resource in enumerate(stored.deployment.resources)
        )

    async def put_next(self, tenant: str, stored: StoredDeployment) -> None:
        """Enqueue a job for the deployment's next time."""
        if stored.next_at is not None:
            await self.put_job(tenant, stored.id, at=stored.next_at)

    async def put_job(self, tenant: str, deployment_id: str, *, at: datetime | None = None) -> None:
        await self._put(Job(task=FIRE_TASK, key=deployment_id, tenant=tenant), at=at)

    def _seal_tokens(self, tenant: str, deployment_id: str, tokens: ResourceTokens) -> bytes:
        return self._seal.seal(msgspec.json.encode(tokens), _context(tenant, deployment_id))


def split_tokens(
    params: Sequence[ResourceParams],
) -> tuple[tuple[DeploymentResource, ...], ResourceTokens]:
    """The resources without secrets, and the tokens by the positions of their resources.

    Raises: InvalidInput: a malformed URL, or one that contains a secret.
    """
    resources: list[DeploymentResource] = []
    tokens: ResourceTokens = {}
    for index, resource in enumerate(params):
        if not isinstance(resource, RepositoryResourceParams):
            resources.append(resource)
            continue
        repository_name(resource.url)
        resources.append(copy_fields(RepositoryReference, resource))
        if resource.authorization_token is not None:
            tokens[index] = resource.authorization_token
    return tuple(resources), tokens


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


_NOT_FOUND_ERRORS: dict[str, RunErrorType] = {
    "agent": "agent_archived_error",
    "environment": "environment_not_found_error",
    "file": "file_not_found_error",
    "skill": "skill_not_found_error",
    "vault": "vault_not_found_error",
}
_ARCHIVED_ERRORS: dict[str, RunErrorType] = {
    "environment": "environment_archived_error",
    "memory_store": "memory_store_archived_error",
    "vault": "vault_archived_error",
}


@dataclass(frozen=True, slots=True)
class DeploymentReferences:
    records: Records

    async def check(self, tenant: str, deployment: Deployment) -> None:
        """Raises: NotFound; InvalidInput: a reference is archived."""
        for kind, id_ in _referenced_ids(deployment):
            await self.require(tenant, kind, id_)
        if problem := await self.problem(tenant, deployment):
            raise InvalidInput(problem.message)

    async def problem(self, tenant: str, deployment: Deployment) -> RunError | None:
        """The first problem with its references, except the agent; `None` if there is none."""
        if await Tenants(self.records).is_disabled(tenant):
            message = f"the tenant {tenant} is disabled"
            return RunError(type="organization_disabled_error", message=message)
        for kind, id_ in _referenced_ids(deployment):
            try:
                record = await self.require(tenant, kind, id_)
            except NotFound as error:
                return run_error(error)
            if record.is_archived and kind in _ARCHIVED_ERRORS:
                noun = kind.replace("_", " ")
                return RunError(type=_ARCHIVED_ERRORS[kind], message=f"{noun} `{id_}` is archived")
            if kind == "environment" and _mount_problem(record, deployment):
                return RunError(
                    type="self_hosted_resources_unsupported_error",
                    message=f"environment `{id_}` is self-hosted and has no files or repositories",
                )
        return None

    async def has_agent(self, tenant: str, agent_id: str) -> bool:
        try:
            return not (await self.require(tenant, "agent", agent_id)).is_archived
        except NotFound:
            return False

    async def require(self, tenant: str, kind: str, id_: str) -> RecordRow:
        """Raises: NotFound."""
        record = await self.records.get(kind, id_)
        if record.tenant != tenant:
            raise NotFound(kind, id_)
        return record


def run_error(error: MainspringError) -> RunError:
    """The error of a run whose session could not be started.

    Raises: the error itself, if trying again may help.
    """
    match error:
        case StoreFailed() | LogError():
            raise error
        case RateLimited():
            type_: RunErrorType = "session_rate_limited_error"
        case NotFound(kind=kind):
            type_ = _NOT_FOUND_ERRORS.get(kind, "session_resource_not_found_error")
        case ServiceError() | InvalidInput():
            type_ = "session_creation_rejected_error"
        case _:
            type_ = "unknown_error"
    return RunError(type=type_, message=str(error))


def _referenced_ids(deployment: Deployment) -> Generator[tuple[str, str], None, None]:
    yield "environment", deployment.environment_id
    for vault_id in deployment.vault_ids:
        yield "vault", vault_id
    for resource in deployment.resources:
        if isinstance(resource, FileResourceParams):
            yield "file", resource.file_id
        elif isinstance(resource, StoreResourceParams):
            yield "memory_store", resource.memory_store_id


def _mount_problem(row: RecordRow, deployment: Deployment) -> bool:
    if all(isinstance(resource, StoreResourceParams) for resource in deployment.resources):
        return False
    environment = msgspec.json.decode(row.body, type=Environment)
    return isinstance(environment.config, SelfHostedConfig)
