"""Agents, with all their versions."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock, from_micros
from mainspring.core.errors import AlreadyExists, InvalidInput, NotFound, StaleVersion
from mainspring.log.records import Put, RecordChange, Records
from mainspring.runtime import versions as ledger
from mainspring.service.resources.agent_multiagent import (
    AgentReference,
    Multiagent,
    MultiagentParams,
    MultiagentResolver,
    Version,
    advisor_model,
    with_self_reference,
)
from mainspring.service.resources.agent_tool_validation import check_tools
from mainspring.service.resources.agent_tools import (
    AgentTool,
    McpServers,
    ToolsParams,
    UrlMcpServer,
    resolve_tools,
)
from mainspring.service.resources.skill_resources import AgentSkill, Skills, SkillsParams
from mainspring.service.storage.metadata import Metadata, MetadataPatch, patch_metadata
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import IndexColumns, ListQuery, Repository

T = TypeVar("T")

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Description = Annotated[str, Meta(max_length=2048)]
SystemPrompt = Annotated[str, Meta(max_length=100_000)]


class ServiceAccount(Struct, frozen=True, kw_only=True, tag_field="type", tag="service_account"):
    pass


class AwsRole(Struct, frozen=True, kw_only=True, tag_field="type", tag="aws_role"):
    role_arn: Annotated[str, Meta(min_length=1, max_length=2048)]


ExecutionIdentity: TypeAlias = ServiceAccount | AwsRole


class AgentObject(Struct, frozen=True, kw_only=True):
    """An agent at one version."""

    id: str
    created_at: datetime
    updated_at: datetime
    execution_identity: ExecutionIdentity
    mcp_servers: tuple[UrlMcpServer, ...]
    metadata: Metadata
    model: ModelConfig
    name: str
    skills: tuple[AgentSkill, ...]
    tools: tuple[AgentTool, ...]
    version: int
    archived_at: datetime | None = None
    description: str | None = None
    multiagent: Multiagent | None = None
    system: str | None = None
    type: Literal["agent"] = "agent"


class CreateAgent(Struct, frozen=True, kw_only=True):
    model: ModelParams
    name: Name
    description: Description | None = None
    execution_identity: ExecutionIdentity | None = None
    mcp_servers: McpServers | None = None
    metadata: Metadata | None = None
    multiagent: MultiagentParams | None = None
    skills: SkillsParams | None = None
    system: SystemPrompt | None = None
    tools: ToolsParams | None = None


class UpdateAgent(Struct, frozen=True, kw_only=True):
    """Omitted fields keep their values; `null` restores the default."""

    description: Description | UnsetType | None = UNSET
    execution_identity: ExecutionIdentity | UnsetType | None = UNSET
    mcp_servers: McpServers | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET
    model: ModelParams | UnsetType = UNSET
    multiagent: MultiagentParams | UnsetType | None = UNSET
    name: Name | UnsetType = UNSET
    skills: SkillsParams | UnsetType | None = UNSET
    system: SystemPrompt | UnsetType | None = UNSET
    tools: ToolsParams | UnsetType | None = UNSET
    version: Version | UnsetType | None = UNSET


class AgentVersion(Struct, frozen=True, kw_only=True):
    """A version of an agent, stored as long as the agent exists."""

    id: str
    agent: AgentObject
    content_hash: str
    """SHA-256 of the agent's definition: see `content_hash`."""
    version: ledger.Version | None = None
    """`None` in records from before the version ledger."""


class Agents:
    def __init__(
        self,
        records: Records,
        *,
        check_model: Callable[[str], object] = lambda _: None,
        clock: Clock = clocks.now,
    ) -> None:
        """`check_model` raises `InvalidInput` for a model that is not available."""
        self._agents = Repository(
            records, "agent", AgentObject, columns=_agent_index_columns, clock=clock
        )
        self._versions = Repository(
            records, "agent_version", AgentVersion, columns=_version_index_columns, clock=clock
        )
        self.page = self._agents.page
        self._skills = Skills(records, clock=clock)
        self._check_model = check_model
        self._clock = clock

    async def create(
        self, tenant: str, request: CreateAgent, *, author: str | None = None
    ) -> AgentObject:
        """Raises: InvalidInput."""
        now = self._clock()
        empty = AgentObject(
            id=ids.new_id("agent"),
            created_at=now,
            updated_at=now,
            execution_identity=ServiceAccount(),
            mcp_servers=(),
            metadata={},
            model=ModelConfig(id=""),
            name=request.name,
            skills=(),
            tools=(),
            version=1,
        )
        agent = await self.with_changes(tenant, empty, UpdateAgent(**asdict(request)))
        await self._agents.records.write(
            self._agents.put_change(tenant, agent),
            self._version_change(tenant, agent, ledger.NO_VERSION, author),
        )
        return agent

    async def get(self, tenant: str, agent_id: str, version: int | None = None) -> AgentObject:
        """The current agent, or the agent at a version.

        Raises: NotFound.
        """
        agent = await self._agents.get(tenant, agent_id)
        if version is None or version == agent.version:
            return agent
        try:
            agent_version = await self._versions.named(tenant, _sortable(version), parent=agent_id)
        except NotFound:
            raise NotFound("version", f"{version} of the agent {agent_id}") from None
        return replace(agent_version.agent, archived_at=agent.archived_at)

    async def reference(self, tenant: str, agent_id: str, version: int | None) -> AgentReference:
        """The version that new sessions start with. Raises: NotFound, InvalidInput."""
        agent = await self.get(tenant, agent_id, version)
        if agent.archived_at is not None:
            raise InvalidInput(f"agent {agent_id} is archived; it cannot start sessions")
        return AgentReference(id=agent.id, version=agent.version)

    async def update(
        self, tenant: str, agent_id: str, request: UpdateAgent, *, author: str | None = None
    ) -> AgentObject:
        """Create a new version, unless nothing would change.

        Raises: NotFound, InvalidInput, StaleVersion: it has another version than was expected.
        """

        async def prepare() -> tuple[AgentObject, list[RecordChange]]:
            row = await self._agents.row(tenant, agent_id)
            current = self._agents.read(row)
            _check_changeable(current, request)
            agent = await self.with_changes(tenant, current, request)
            if content_hash(agent) == content_hash(current):
                return current, []
            agent = self._next(agent)
            parent = ledger.Version(
                number=current.version, hash=content_hash(current), time=current.updated_at
            )
            return agent, [
                self._agents.replace_change(row, agent),
                self._version_change(tenant, agent, parent, author),
            ]

        return await self._agents.transact(
            agent_id, prepare, conflicts=(StaleVersion, AlreadyExists)
        )

    async def archive(self, tenant: str, agent_id: str) -> AgentObject:
        """Archive an agent: it can no longer be changed or start sessions; existing sessions
        continue."""

        def change(current: AgentObject) -> AgentObject:
            if current.archived_at:
                return current
            now = self._clock()
            return replace(current, archived_at=now, updated_at=now)

        return await self._agents.update(tenant, agent_id, change)

    async def versions(self, tenant: str, agent_id: str, query: ListQuery) -> Page[AgentObject]:
        """The newest first. Raises: NotFound."""
        agent = await self._agents.get(tenant, agent_id)
        versions = await self._versions.page(tenant, dataclasses.replace(query, parent=agent_id))
        return versions.map(lambda item: replace(item.agent, archived_at=agent.archived_at))

    async def with_changes(
        self, tenant: str, current: AgentObject, request: UpdateAgent
    ) -> AgentObject:
        """The agent with these changes; nothing is stored. Raises: InvalidInput."""
        model = current.model
        if not isinstance(request.model, UnsetType):
            model = resolve_model(request.model, current.model)
            self._check_model(model.id)
        servers = _value_or_cleared(request.mcp_servers, current.mcp_servers, ())
        tools = current.tools
        if not isinstance(request.tools, UnsetType):
            tools = resolve_tools(request.tools or ())
        check_tools(tools, servers)
        return replace(
            current,
            name=_value_or_cleared(request.name, current.name, current.name),
            description=_value_or_cleared(request.description, current.description, None) or None,
            system=_value_or_cleared(request.system, current.system, None) or None,
            execution_identity=_value_or_cleared(
                request.execution_identity, current.execution_identity, ServiceAccount()
            ),
            metadata=patch_metadata(current.metadata, request.metadata),
            model=model,
            mcp_servers=servers,
            tools=tools,
            skills=current.skills
            if isinstance(request.skills, UnsetType)
            else await self._skills.resolve(tenant, request.skills or ()),
            multiagent=await self._resolved_multiagent(tenant, current, request.multiagent),
        )

    async def with_pinned_skills(self, tenant: str, agent: AgentObject) -> AgentObject:
        """The agent with the latest versions of its skills."""
        skills = [await self._skills.pin(tenant, skill) for skill in agent.skills]
        return replace(agent, skills=tuple(skills))

    async def _resolved_multiagent(
        self, tenant: str, current: AgentObject, params: MultiagentParams | UnsetType | None
    ) -> Multiagent | None:
        if isinstance(params, UnsetType):
            return current.multiagent
        if params is None:
            return None
        roster = MultiagentResolver(
            owner=current.id,
            version=current.version,
            find_agent=lambda agent_id, version: self.get(tenant, agent_id, version),
        )
        multiagent = await roster.resolve(params, current.multiagent)
        if (model := advisor_model(multiagent)) is not None:
            self._check_model(model)
        return multiagent

    def _next(self, agent: AgentObject) -> AgentObject:
        version = agent.version + 1
        multiagent = with_self_reference(
            agent.multiagent, agent.id, AgentReference(id=agent.id, version=version)
        )
        return replace(agent, version=version, updated_at=self._clock(), multiagent=multiagent)

    def _version_change(
        self, tenant: str, agent: AgentObject, parent: ledger.Version, author: str | None
    ) -> Put:
        hash_ = content_hash(agent)
        version = AgentVersion(
            id=f"{agent.id}_{_sortable(agent.version)}",
            agent=agent,
            content_hash=hash_,
            version=parent.next(hash_, agent.updated_at, author=author),
        )
        return self._versions.put_change(tenant, version)


def content_hash(agent: AgentObject) -> str:
    """SHA-256 of the agent's definition: everything except its id, version and times."""
    no_reference = AgentReference(id="", version=0)
    definition = replace(
        agent,
        id="",
        version=0,
        created_at=from_micros(0),
        updated_at=from_micros(0),
        archived_at=None,
        multiagent=with_self_reference(agent.multiagent, agent.id, no_reference),
    )
    return hashlib.sha256(msgspec.json.encode(definition, order="sorted")).hexdigest()


def _value_or_cleared(params: T | UnsetType | None, current: T, cleared: T) -> T:
    if isinstance(params, UnsetType):
        return current
    return cleared if params is None else params


def _check_changeable(current: AgentObject, request: UpdateAgent) -> None:
    if request.version not in (UNSET, None, current.version):
        raise StaleVersion(
            f"agent {current.id} is at version {current.version}, not at {request.version}:"
            " read it again and retry"
        )
    if current.archived_at is not None:
        raise InvalidInput(f"agent {current.id} is archived and cannot be changed")


def _sortable(version: int) -> str:
    """A name that sorts like the number."""
    return f"{version:08d}"


def _agent_index_columns(agent: AgentObject) -> IndexColumns:
    return IndexColumns(is_archived=agent.archived_at is not None)


def _version_index_columns(version: AgentVersion) -> IndexColumns:
    return IndexColumns(parent=version.agent.id, name=_sortable(version.agent.version))


ModelId = Annotated[ids.ModelId, Meta(min_length=1, max_length=256)]
EffortLevel: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
Speed: TypeAlias = Literal["standard", "fast"]
Geo = Annotated[str, Meta(min_length=1, max_length=64)]


class Effort(Struct, frozen=True, kw_only=True):
    type: EffortLevel


class ModelConfig(Struct, frozen=True, kw_only=True):
    id: str
    effort: Effort | None = None
    """`null`: the model's default."""
    inference_geo: str | None = None
    speed: Speed | None = None


class ModelConfigParams(Struct, frozen=True, kw_only=True):
    id: ModelId
    effort: EffortLevel | Effort | UnsetType | None = UNSET
    inference_geo: Geo | None = None
    speed: Speed | None = None


ModelParams: TypeAlias = ModelId | ModelConfigParams


def resolve_model(params: ModelParams, current: ModelConfig | None = None) -> ModelConfig:
    """The new configuration of a model; an unset effort keeps its current value."""
    if isinstance(params, str):
        params = ModelConfigParams(id=params)
    effort = params.effort
    if isinstance(effort, UnsetType):
        effort = None if current is None else current.effort
    elif isinstance(effort, str):
        effort = Effort(type=effort)
    return ModelConfig(
        id=params.id,
        effort=effort,
        inference_geo=params.inference_geo,
        speed=params.speed or "standard",
    )
