"""Deployments and their runs as the API has them: the words only."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.core.errors import InvalidInput
from mainspring.core.events import TextRubric
from mainspring.core.ids import AgentId, EnvironmentId, VaultId
from mainspring.service.calendar.schedules import Cron, Policy
from mainspring.service.describing.agent_roster import AgentReference, Version
from mainspring.service.keeping.metadata import Metadata, MetadataPatch
from mainspring.service.sessions.mounted import (
    Checkout,
    FileAsked,
    RepositoryAsked,
    ResourceAsked,
    StoreAsked,
)
from mainspring.service.sessions.record import Budget
from mainspring.service.sessions.sending_params import SendMessage, SendOutcome, SendSystem

_LONGEST_RUBRIC = 262_144

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Description = Annotated[str, Meta(max_length=2048)]
EnvironmentAsked = Annotated[EnvironmentId, Meta(min_length=1, max_length=128)]
VaultIds = Annotated[tuple[VaultId, ...], Meta(max_length=50)]
InitialEvent: TypeAlias = SendMessage | SendOutcome | SendSystem
InitialEvents = Annotated[tuple[InitialEvent, ...], Meta(min_length=1, max_length=50)]


class Repository(Struct, frozen=True, kw_only=True, tag_field="type", tag="github_repository"):
    """Without its token: that is kept apart and sealed, never shown."""

    url: str
    checkout: Checkout | None = None
    mount_path: str | None = None

    @classmethod
    def of(cls, asked: RepositoryAsked) -> Repository:
        return cls(url=asked.url, checkout=asked.checkout, mount_path=asked.mount_path)


Resource: TypeAlias = FileAsked | Repository | StoreAsked
ResourcesAsked = Annotated[tuple[ResourceAsked, ...], Meta(max_length=500)]


class AgentAsked(Struct, frozen=True, kw_only=True, tag_field="type", tag="agent"):
    id: AgentId
    version: Version | None = None


class ScheduleAsked(Struct, frozen=True, kw_only=True, tag_field="type", tag="cron"):
    expression: Annotated[str, Meta(min_length=1, max_length=256)]
    timezone: Annotated[str, Meta(min_length=1, max_length=64)]
    policy: Policy | UnsetType = UNSET
    """Ours."""


class Schedule(Struct, frozen=True, kw_only=True, tag_field="type", tag="cron"):
    expression: str
    timezone: str
    last_run_at: datetime | None = None
    upcoming_runs_at: tuple[datetime, ...] = ()
    """Reckoned when it is shown, not kept."""
    policy: Policy | UnsetType = UNSET

    @property
    def cron(self) -> Cron:
        policy = Policy() if self.policy is UNSET else self.policy
        return Cron(expression=self.expression, timezone=self.timezone, policy=policy)


RunErrorType: TypeAlias = Literal[
    "environment_archived_error",
    "agent_archived_error",
    "environment_not_found_error",
    "vault_not_found_error",
    "vault_archived_error",
    "file_not_found_error",
    "memory_store_archived_error",
    "skill_not_found_error",
    "session_resource_not_found_error",
    "workspace_archived_error",
    "organization_disabled_error",
    "session_rate_limited_error",
    "session_creation_rejected_error",
    "unknown_error",
    "self_hosted_resources_unsupported_error",
    "mcp_egress_blocked_error",
]
PASSING: frozenset[RunErrorType] = frozenset(
    ("session_rate_limited_error", "session_creation_rejected_error")
)
"""After these the schedule goes on; any other pauses it."""


class PausedByHand(Struct, frozen=True, kw_only=True, tag_field="type", tag="manual"):
    pass


class ErrorType(Struct, frozen=True, kw_only=True):
    type: RunErrorType


class PausedByError(Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    error: ErrorType


class Deployment(Struct, frozen=True, kw_only=True):
    id: str
    agent: AgentReference
    environment_id: str
    initial_events: tuple[InitialEvent, ...]
    name: str
    created_at: datetime
    updated_at: datetime
    metadata: Metadata = {}
    resources: tuple[Resource, ...] = ()
    vault_ids: tuple[str, ...] = ()
    status: Literal["active", "paused"] = "active"
    archived_at: datetime | None = None
    description: str | None = None
    paused_reason: PausedByHand | PausedByError | None = None
    schedule: Schedule | None = None
    budget: Budget | UnsetType = UNSET
    type: Literal["deployment"] = "deployment"


class CreateDeployment(Struct, frozen=True, kw_only=True):
    agent: AgentId | AgentAsked
    environment_id: EnvironmentAsked
    initial_events: InitialEvents
    name: Name
    budget: Budget | None = None
    description: Description | None = None
    metadata: Metadata = {}
    resources: ResourcesAsked = ()
    schedule: ScheduleAsked | None = None
    vault_ids: VaultIds = ()


class UpdateDeployment(Struct, frozen=True, kw_only=True):
    """What is not said stays; `null` clears what can be cleared."""

    agent: AgentId | AgentAsked | UnsetType = UNSET
    environment_id: EnvironmentAsked | UnsetType = UNSET
    initial_events: InitialEvents | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    budget: Budget | UnsetType | None = UNSET
    description: Description | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET
    resources: ResourcesAsked | UnsetType | None = UNSET
    schedule: ScheduleAsked | UnsetType | None = UNSET
    vault_ids: VaultIds | UnsetType | None = UNSET


class RunError(Struct, frozen=True, kw_only=True):
    type: RunErrorType
    message: str


class ByHand(Struct, frozen=True, kw_only=True, tag_field="type", tag="manual"):
    pass


class BySchedule(Struct, frozen=True, kw_only=True, tag_field="type", tag="schedule"):
    scheduled_at: datetime
    """What the clock showed matched then; without jitter."""


TriggerContext: TypeAlias = BySchedule | ByHand


class DeploymentRun(Struct, frozen=True, kw_only=True):
    id: str
    agent: AgentReference
    created_at: datetime
    deployment_id: str
    trigger_context: TriggerContext
    error: RunError | None = None
    session_id: str | None = None
    """Either this or an error."""
    type: Literal["deployment_run"] = "deployment_run"


def checked_events(events: tuple[InitialEvent, ...]) -> tuple[InitialEvent, ...]:
    """Raises: InvalidInput."""
    for index, event in enumerate(events):
        match event:
            case SendOutcome(rubric=TextRubric(content=content)):
                if len(content) > _LONGEST_RUBRIC:
                    raise InvalidInput(
                        f"initial_events[{index}].rubric.content: at most {_LONGEST_RUBRIC}"
                        " characters"
                    )
            case SendSystem():
                is_last = index == len(events) - 1
                if not is_last or not index or not isinstance(events[index - 1], SendMessage):
                    raise InvalidInput(
                        f"initial_events[{index}]: a system.message is the last, and follows a"
                        " user.message"
                    )
            case _:
                pass
    return events
