"""The ids that a key of limited scope may name: a key for one agent, or for the work of one
environment. Every id of a request is checked here, in its path, query and body; an id of a kind
without a rule may not be named.

Ids of a tenant-wide key are not checked here: they are looked up among its tenant's resources.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from mainspring.core import clock as clocks
from mainspring.core.errors import Forbidden, NotFound
from mainspring.log.records import SESSION_KIND, Records
from mainspring.service.access.principal import Principal, Role
from mainspring.service.access.request_ids import NamedId, ids_in_path
from mainspring.service.approvals.approval_record import approval_repository
from mainspring.service.resources.agents import AgentObject
from mainspring.service.resources.environments import CloudConfig, Environment
from mainspring.service.resources.file_resources import File
from mainspring.service.schedules.deployment_store import DEPLOYMENT_KIND as DEPLOYMENT
from mainspring.service.schedules.deployment_store import StoredDeployment as KeptDeployment
from mainspring.service.sessions.resource_types import FileResource, StoreResource
from mainspring.service.sessions.session_agent import skills_of
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.storage.repository import Repository

_WITHIN_SESSION = ("thread", "tool_use", "session_resource")
"""Looked up in the session of the path, which has already been checked."""
_UNSCOPED = ("model", "external")
_USED_BY_SESSION = ("memory_store_id", "skill_id")


class RoutePolicy(Protocol):
    """The part of a route that authentication reads."""

    @property
    def role(self) -> Role: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def for_agent_keys(self) -> bool: ...
    @property
    def for_worker_keys(self) -> bool: ...


_IdRule: TypeAlias = Callable[[Principal, str], Awaitable[None]]


class KeyScope:
    def __init__(self, records: Records, sessions: Repository[SessionRecord] | None = None) -> None:
        self._sessions = sessions or Repository(records, SESSION_KIND, SessionRecord)
        self._agents = Repository(records, "agent", AgentObject)
        self._environments = Repository(records, "environment", Environment)
        self._files = Repository(records, "file", File)
        self._deployments = Repository(records, DEPLOYMENT, KeptDeployment)
        self._approvals = approval_repository(records, clocks.now)
        self._of_agent: Mapping[str, _IdRule] = {
            **dict.fromkeys((*_WITHIN_SESSION, *_UNSCOPED), _allow_any),
            "agent": _require_own_agent,
            "session": self._agents_session,
            "environment": self._agents_environment,
            "file": self._agents_file,
            "skill": self._agents_skill,
            "vault": _require_granted,
            "memory_store": _require_granted,
            "deployment": self._agents_deployment,
            "approval": self._agents_approval,
        }

    async def check_route(
        self, principal: Principal, route: RoutePolicy, path: Mapping[str, str]
    ) -> None:
        """Check that the key may call this route with the ids in its path.

        Raises: Forbidden, NotFound.
        """
        if principal.environment_id is not None:
            if not route.for_worker_keys:
                raise Forbidden("this key is for the work of its environment only")
            await self._check_workers_path(principal, path, route)
        if principal.agent_id is not None:
            if not (route.for_agent_keys or "agent_id" in path or "session_id" in path):
                raise Forbidden(
                    f"the key {principal.name!r} is for the agent {principal.agent_id} only"
                )
            await self.check_ids(principal, path, ids_in_path(path))

    async def check_ids(
        self, principal: Principal, path: Mapping[str, str], named: Iterable[NamedId]
    ) -> None:
        """Check that the key may name these ids in a request with this path.

        Raises: Forbidden, NotFound.
        """
        for item in named:
            if principal.agent_id is not None:
                rule = self._of_agent.get(item.kind, _deny_all)
                await rule(principal, item.id)
            if principal.environment_id is not None:
                await self._check_workers_id(principal, path, item)

    async def _agents_session(self, principal: Principal, session_id: str) -> None:
        principal.require_agent((await self._sessions.get(principal.tenant, session_id)).agent.id)

    async def _agents_environment(self, principal: Principal, environment_id: str) -> None:
        """A cloud environment describes a sandbox; a self-hosted one is a client's machine."""
        environment = await self._environments.get(principal.tenant, environment_id)
        if not isinstance(environment.config, CloudConfig):
            await _require_granted(principal, environment_id)

    async def _agents_file(self, principal: Principal, file_id: str) -> None:
        file = await self._files.get(principal.tenant, file_id)
        if file.scope is None:
            return await _require_granted(principal, file_id)
        await self._agents_session(principal, file.scope.id)

    async def _agents_skill(self, principal: Principal, skill_id: str) -> None:
        agent = await self._agents.get(principal.tenant, principal.agent_id or "")
        if skill_id not in {skill.skill_id for skill in agent.skills}:
            await _require_granted(principal, skill_id)

    async def _agents_deployment(self, principal: Principal, deployment_id: str) -> None:
        stored_deployment = await self._deployments.get(principal.tenant, deployment_id)
        principal.require_agent(stored_deployment.deployment.agent.id)

    async def _agents_approval(self, principal: Principal, approval_id: str) -> None:
        if (
            await self._approvals.get(principal.tenant, approval_id)
        ).agent_id != principal.agent_id:
            raise NotFound("approval", approval_id)

    async def _check_workers_path(
        self, principal: Principal, path: Mapping[str, str], route: RoutePolicy
    ) -> None:
        if "environment_id" in path:
            _require_environment(principal, path["environment_id"])
        if "session_id" in path:
            session = await self._sessions.get(principal.tenant, path["session_id"])
            _require_environment(principal, session.environment_id)
        if principal.session_id is not None:
            _require_own(principal, path)
        if "skill_id" in path:
            await self._check_workers_skill(principal, path["skill_id"])
        if "memory_store_id" in path:
            await self._check_workers_store(principal, path["memory_store_id"], route)

    async def _check_workers_id(
        self, principal: Principal, path: Mapping[str, str], named: NamedId
    ) -> None:
        if named.kind in _WITHIN_SESSION:
            return
        if named.kind != "file" or "session_id" not in path:
            return await _deny_all(principal, named.id)
        session = await self._sessions.get(principal.tenant, path["session_id"])
        file = await self._files.get(principal.tenant, named.id)
        is_its_own = file.scope is not None and file.scope.id == session.id
        mounted = {
            resource.file_id for resource in session.resources if isinstance(resource, FileResource)
        }
        if not is_its_own and file.id not in mounted:
            raise NotFound("file", named.id)

    async def _check_workers_skill(self, principal: Principal, skill_id: str) -> None:
        if principal.session_id is None:
            raise Forbidden("skills need the token of a work item, not the key of an environment")
        session = await self._sessions.get(principal.tenant, principal.session_id)
        if skill_id not in {item.skill_id for item in skills_of(session.agent)}:
            raise NotFound("skill", skill_id)

    async def _check_workers_store(
        self, principal: Principal, store_id: str, route: RoutePolicy
    ) -> None:
        """A worker of a session may use the stores of that session only."""
        if principal.session_id is None:
            raise Forbidden("memory needs the token of a work item, not the key of an environment")
        session = await self._sessions.get(principal.tenant, principal.session_id)
        stores = {
            resource.memory_store_id: resource.access
            for resource in session.resources
            if isinstance(resource, StoreResource)
        }
        if store_id not in stores:
            raise NotFound("memory_store", store_id)
        if stores[store_id] == "read_only" and route.role != "viewer":
            raise Forbidden(f"the session {principal.session_id} may only read {store_id}")


async def _allow_any(_who: Principal, _id: str) -> None:
    pass


async def _deny_all(principal: Principal, id_: str) -> None:
    raise Forbidden(f"the key {principal.name!r} may not name {id_}")


async def _require_own_agent(principal: Principal, agent_id: str) -> None:
    principal.require_agent(agent_id)


async def _require_granted(principal: Principal, id_: str) -> None:
    if id_ not in principal.grants:
        raise Forbidden(
            f"the key {principal.name!r} was not granted {id_}; see `grants` of the key"
        )


def _require_environment(principal: Principal, environment_id: str) -> None:
    if principal.environment_id != environment_id:
        raise Forbidden(
            f"the key {principal.name!r} is for the environment {principal.environment_id} only"
        )


def _require_own(principal: Principal, path: Mapping[str, str]) -> None:
    """The token of a work item covers that item, its session, and what the session uses."""
    own = {"work_id": principal.work_id, "session_id": principal.session_id}
    own_names = [name for name in (*own, *_USED_BY_SESSION) if name in path]
    if not own_names or any(path[name] != own[name] for name in own_names if name in own):
        raise Forbidden(
            f"this token is for {principal.work_id} and the session {principal.session_id} only"
        )
