"""Whether what a deployment refers to is still there: the reasons why no session can be started."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import msgspec

from mainspring.core.errors import (
    InvalidInput,
    LogError,
    MainspringError,
    NotFound,
    RateLimited,
    ServiceError,
    StoreFailed,
)
from mainspring.log.records import RecordRow, Records
from mainspring.service.access.tenants import Tenants
from mainspring.service.resources.environments import Environment, SelfHostedConfig
from mainspring.service.schedules.deployment_types import Deployment, RunError, RunErrorType
from mainspring.service.sessions.resource_types import FileResourceParams, StoreResourceParams

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
        """Raises: NotFound: it is not there. InvalidInput: it is of no use any more."""
        for kind, id_ in _referenced_ids(deployment):
            await self.require(tenant, kind, id_)
        if problem := await self.problem(tenant, deployment):
            raise InvalidInput(problem.message)

    async def problem(self, tenant: str, deployment: Deployment) -> RunError | None:
        """Of all but the agent; `None` if there is none."""
        if await Tenants(self.records).is_disabled(tenant):
            message = f"the tenant {tenant} is disabled"
            return RunError(type="organization_disabled_error", message=message)
        for kind, id_ in _referenced_ids(deployment):
            try:
                record = await self.require(tenant, kind, id_)
            except NotFound as missing:
                return run_error(missing)
            if record.is_archived and kind in _ARCHIVED_ERRORS:
                shown = kind.replace("_", " ")
                return RunError(type=_ARCHIVED_ERRORS[kind], message=f"{shown} `{id_}` is archived")
            if kind == "environment" and _mount_problem(record, deployment):
                return RunError(
                    type="self_hosted_resources_unsupported_error",
                    message=f"environment `{id_}` is self-hosted: no files or repositories there",
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
    """What a refusal to start a session is to a run.

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
