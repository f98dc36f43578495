"""The agents that an agent may call: the two forms of `multiagent`, as requested and as stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, Protocol, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.ids import AgentId

Version = Annotated[int, Meta(ge=1)]


class AgentReference(Struct, frozen=True, kw_only=True, tag_field="type", tag="agent"):
    id: str
    version: int


class Advisor(Struct, frozen=True, kw_only=True, tag_field="type", tag="advisor"):
    """A model that gives advice in the middle of a turn."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]


class Coordinator(Struct, frozen=True, kw_only=True, tag_field="type", tag="coordinator"):
    agents: tuple[AgentReference | Advisor, ...]


class Switch(Struct, frozen=True, kw_only=True):
    type: Literal["enabled", "disabled"]


class Disabled(Struct, frozen=True, kw_only=True, tag_field="type", tag="disabled"):
    pass


class AdvisorEnabled(Struct, frozen=True, kw_only=True, tag_field="type", tag="enabled"):
    model: Annotated[str, Meta(min_length=1, max_length=256)]


class DelegationEnabled(Struct, frozen=True, kw_only=True, tag_field="type", tag="enabled"):
    """Threads (`subagents`) or runs (`workflows`) may be started, with these agents."""

    inline_agents: Switch
    predefined_agents: tuple[AgentReference, ...]


class Multiagent20261001(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="multiagent_20261001"
):
    advisor: AdvisorEnabled | Disabled
    subagents: DelegationEnabled | Disabled
    workflows: DelegationEnabled | Disabled


Multiagent: TypeAlias = Coordinator | Multiagent20261001


class AgentParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="agent"):
    id: AgentId
    version: Version | None = None


class SelfParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="self"):
    pass


class CoordinatorParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="coordinator"):
    agents: Annotated[
        tuple[AgentId | AgentParams | SelfParams | Advisor, ...], Meta(min_length=1, max_length=20)
    ]


PredefinedAgentsParams = Annotated[
    tuple[AgentId | AgentParams | SelfParams, ...], Meta(max_length=20)
]


class DelegationParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="enabled"):
    inline_agents: Switch | UnsetType | None = UNSET
    predefined_agents: PredefinedAgentsParams | UnsetType | None = UNSET


class Multiagent20261001Params(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="multiagent_20261001"
):
    advisor: AdvisorEnabled | Disabled | UnsetType | None = UNSET
    subagents: DelegationParams | Disabled | UnsetType | None = UNSET
    workflows: DelegationParams | Disabled | UnsetType | None = UNSET


MultiagentParams: TypeAlias = CoordinatorParams | Multiagent20261001Params


class ReferencedAgent(Protocol):
    """The part of an agent that the resolver reads."""

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def archived_at(self) -> datetime | None: ...

    @property
    def multiagent(self) -> Multiagent | None: ...


FindAgent: TypeAlias = Callable[[str, int | None], Awaitable[ReferencedAgent]]
"""The agent with that id, at that version or the newest. Raises: NotFound."""

_ENABLED = Switch(type="enabled")
_DEFAULT_DELEGATION = DelegationEnabled(inline_agents=_ENABLED, predefined_agents=())
_DEFAULT_MULTIAGENT = Multiagent20261001(
    advisor=Disabled(), subagents=_DEFAULT_DELEGATION, workflows=_DEFAULT_DELEGATION
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiagentResolver:
    """Resolves a request to references to existing agents, each at one version."""

    owner: str
    """The agent whose `multiagent` it is."""
    version: int
    """The current version of the owner."""
    find_agent: FindAgent

    async def resolve(self, params: MultiagentParams, current: Multiagent | None) -> Multiagent:
        """Raises: InvalidInput."""
        if isinstance(params, CoordinatorParams):
            return await self._coordinator(params)
        stored_multiagent = (
            current if isinstance(current, Multiagent20261001) else _DEFAULT_MULTIAGENT
        )
        return Multiagent20261001(
            advisor=stored_multiagent.advisor
            if isinstance(params.advisor, UnsetType)
            else params.advisor or Disabled(),
            subagents=await self._delegation(
                params.subagents, stored_multiagent.subagents, "subagents"
            ),
            workflows=await self._delegation(
                params.workflows, stored_multiagent.workflows, "workflows"
            ),
        )

    async def _coordinator(self, params: CoordinatorParams) -> Coordinator:
        where = "multiagent.agents"
        agents = [
            entry
            if isinstance(entry, Advisor)
            else await self._reference(entry, f"{where}[{index}]", may_delegate=False)
            for index, entry in enumerate(params.agents)
        ]
        if sum(isinstance(entry, Advisor) for entry in agents) > 1:
            raise InvalidInput(f"{where}: at most one advisor")
        _check_distinct([entry for entry in agents if isinstance(entry, AgentReference)], where)
        return Coordinator(agents=tuple(agents))

    async def _delegation(
        self,
        params: DelegationParams | Disabled | UnsetType | None,
        stored: DelegationEnabled | Disabled,
        name: str,
    ) -> DelegationEnabled | Disabled:
        if isinstance(params, UnsetType):
            return stored
        if params is None:
            return _DEFAULT_DELEGATION
        if isinstance(params, Disabled):
            return params
        where = f"multiagent.{name}.predefined_agents"
        base = stored if isinstance(stored, DelegationEnabled) else _DEFAULT_DELEGATION
        inline = params.inline_agents
        merged = DelegationEnabled(
            inline_agents=(
                base.inline_agents if isinstance(inline, UnsetType) else inline or _ENABLED
            ),
            predefined_agents=await self._predefined(
                params.predefined_agents, base.predefined_agents, where
            ),
        )
        if merged.inline_agents.type == "disabled" and not merged.predefined_agents:
            raise InvalidInput(
                f"{where}: at least one is required, because inline agents are disabled"
            )
        return merged

    async def _predefined(
        self,
        params: Sequence[str | AgentParams | SelfParams] | UnsetType | None,
        stored: tuple[AgentReference, ...],
        where: str,
    ) -> tuple[AgentReference, ...]:
        if isinstance(params, UnsetType):
            return stored
        references = [
            await self._reference(entry, f"{where}[{index}]", may_delegate=True)
            for index, entry in enumerate(params or ())
        ]
        _check_distinct(references, where)
        return tuple(references)

    async def _reference(
        self, entry: str | AgentParams | SelfParams, where: str, *, may_delegate: bool
    ) -> AgentReference:
        if isinstance(entry, str):
            entry = AgentParams(id=entry)
        if isinstance(entry, SelfParams) or entry.id == self.owner:
            if isinstance(entry, AgentParams) and entry.version not in (None, self.version):
                raise InvalidInput(f'{where}: the only reference to itself is {{"type": "self"}}')
            return AgentReference(id=self.owner, version=self.version)
        try:
            agent = await self.find_agent(entry.id, entry.version)
        except NotFound as error:
            raise InvalidInput(f"{where}: {error}") from error
        if agent.archived_at is not None:
            raise InvalidInput(f"{where}: the agent {agent.id} is archived")
        if agent.multiagent is not None and not may_delegate:
            raise InvalidInput(f"{where}: the agent {agent.id} has a multiagent of its own")
        return AgentReference(id=agent.id, version=agent.version)


def _check_distinct(references: Sequence[AgentReference], where: str) -> None:
    ids = [reference.id for reference in references]
    if len(set(ids)) < len(ids):
        raise InvalidInput(f"{where}: must not name an agent twice")


def advisor_model(multiagent: Multiagent | None) -> str | None:
    match multiagent:
        case Coordinator(agents=agents):
            return next((agent.model for agent in agents if isinstance(agent, Advisor)), None)
        case Multiagent20261001(advisor=AdvisorEnabled(model=model)):
            return model
        case _:
            return None


def with_self_reference(
    multiagent: Multiagent | None, owner: str, self_: AgentReference
) -> Multiagent | None:
    """`multiagent` with another reference in place of the owner's reference to itself."""

    def swapped(reference: AgentReference) -> AgentReference:
        return self_ if reference.id == owner else reference

    def swapped_in(member: DelegationEnabled | Disabled) -> DelegationEnabled | Disabled:
        if isinstance(member, Disabled):
            return member
        return replace(member, predefined_agents=tuple(map(swapped, member.predefined_agents)))

    if multiagent is None:
        return None
    if isinstance(multiagent, Coordinator):
        return Coordinator(
            agents=tuple(
                agent if isinstance(agent, Advisor) else swapped(agent)
                for agent in multiagent.agents
            )
        )
    return replace(
        multiagent,
        subagents=swapped_in(multiagent.subagents),
        workflows=swapped_in(multiagent.workflows),
    )
