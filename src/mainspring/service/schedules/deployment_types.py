"""The API types of deployments and their runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.core.errors import InvalidInput
from mainspring.core.events import TextRubric
from mainspring.core.ids import AgentId, EnvironmentId, MemoryStoreId, VaultId
from mainspring.service.resources.agent_multiagent import AgentParams, AgentReference
from mainspring.service.schedules.cron import CronSchedule, SchedulePolicy
from mainspring.service.sessions.events.event_content import SendMessage, SendOutcome, SendSystem
from mainspring.service.sessions.resource_types import (
    Checkout,
    FileResourceParams,
    ResourceParams,
    StoreResourceParams,
)
from mainspring.service.sessions.session_record import ListCostBudget
from mainspring.service.storage.metadata import Metadata, MetadataPatch

_MAX_RUBRIC_CHARS = 262_144  # as of a rubric that is sent to a session

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Description = Annotated[str, Meta(max_length=2048)]
EnvironmentIdParam = Annotated[EnvironmentId, Meta(min_length=1, max_length=128)]
VaultIds = Annotated[tuple[VaultId, ...], Meta(max_length=50)]
InitialEvent: TypeAlias = SendMessage | SendOutcome | SendSystem
DeploymentInitialEvents = Annotated[tuple[InitialEvent, ...], Meta(min_length=1, max_length=50)]


class RepositoryReference(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="github_repository"
):
    """Without its token, which is sealed separately and never shown."""

    url: str
    checkout: Checkout | None = None
    mount_path: str | None = None


DeploymentResource: TypeAlias = FileResourceParams | RepositoryReference | StoreResourceParams
DeploymentResourcesParams = Annotated[tuple[ResourceParams, ...], Meta(max_length=500)]


class ScheduleParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="cron"):
    expression: Annotated[str, Meta(min_length=1, max_length=256)]
    timezone: Annotated[str, Meta(min_length=1, max_length=64)]
    policy: SchedulePolicy | UnsetType = UNSET
    """An extension."""


class DeploymentSchedule(Struct, frozen=True, kw_only=True, tag_field="type", tag="cron"):
    expression: str
    timezone: str
    last_run_at: datetime | None = None
    upcoming_runs_at: tuple[datetime, ...] = ()
    """The next times of the schedule, computed for each response."""
    policy: SchedulePolicy | UnsetType = UNSET

    @property
    def cron(self) -> CronSchedule:
        policy = SchedulePolicy() if self.policy is UNSET else self.policy
        return CronSchedule(expression=self.expression, timezone=self.timezone, policy=policy)


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
TRANSIENT_ERRORS: frozenset[RunErrorType] = frozenset(
    ("session_rate_limited_error", "session_creation_rejected_error")
)
"""After these the schedule continues; any other error pauses it."""


class ManualPause(Struct, frozen=True, kw_only=True, tag_field="type", tag="manual"):
    pass


class PauseError(Struct, frozen=True, kw_only=True):
    type: RunErrorType


class ErrorPause(Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    error: PauseError


class DreamAction(Struct, frozen=True, kw_only=True, tag_field="type", tag="dream"):
    """Starts a dream over the agent's sessions instead of a session; an extension. Nothing happens
    unless a day has passed since the last dream over the store, or there are five new sessions."""

    memory_store_id: MemoryStoreId
    """The store that the dream updates."""
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    instructions: Annotated[str, Meta(min_length=1, max_length=4_096)] | None = None
    suite: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    """A suite that tests the changes; if they do worse, they are not made."""


class EvalAction(Struct, frozen=True, kw_only=True, tag_field="type", tag="eval"):
    """Runs a suite of the folder that the service runs in, with the agent of that folder, instead
    of a session. An extension. An alarm is raised if the suite gets worse."""

    suite: Annotated[str, Meta(min_length=1, max_length=100)]
    model: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """Used instead of the agent's model; may be a comma-separated list with fallbacks."""
    is_drill: bool = False
    """Whether the first model is treated as unavailable. An alarm is also raised if the gate fails
    with the newest run of the suite as the baseline."""


class WorkflowAction(Struct, frozen=True, kw_only=True, tag_field="type", tag="workflow"):
    """Starts a run of a workflow with the agent, environment, vaults, resources and budget of the
    deployment instead of a session. An extension."""

    workflow: Annotated[str, Meta(min_length=1, max_length=200)]
    """Its name or its id."""
    arguments: Annotated[str, Meta(max_length=100_000)] = ""
    inputs: dict[str, object] = {}
    max_open_runs: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Start none while so many runs of the workflow have not ended."""


class CampaignAction(Struct, frozen=True, kw_only=True, tag_field="type", tag="campaign"):
    """Starts a campaign on the agent of the folder that the service runs in, as its `evolve.yaml`
    says, instead of a session. An extension."""


Action: TypeAlias = DreamAction | EvalAction | CampaignAction | WorkflowAction


class Deployment(Struct, frozen=True, kw_only=True):
    id: str
    agent: AgentReference
    environment_id: str
    initial_events: tuple[InitialEvent, ...]
    name: str
    created_at: datetime
    updated_at: datetime
    metadata: Metadata = {}
    resources: tuple[DeploymentResource, ...] = ()
    vault_ids: tuple[str, ...] = ()
    status: Literal["active", "paused"] = "active"
    archived_at: datetime | None = None
    description: str | None = None
    paused_reason: ManualPause | ErrorPause | None = None
    schedule: DeploymentSchedule | None = None
    budget: ListCostBudget | UnsetType = UNSET
    action: Action | UnsetType = UNSET
    type: Literal["deployment"] = "deployment"


class CreateDeployment(Struct, frozen=True, kw_only=True):
    agent: AgentId | AgentParams
    environment_id: EnvironmentIdParam
    initial_events: DeploymentInitialEvents
    name: Name
    budget: ListCostBudget | None = None
    action: Action | UnsetType = UNSET
    description: Description | None = None
    metadata: Metadata = {}
    resources: DeploymentResourcesParams = ()
    schedule: ScheduleParams | None = None
    vault_ids: VaultIds = ()


class UpdateDeployment(Struct, frozen=True, kw_only=True):
    """Omitted fields keep their values; `null` clears a field."""

    agent: AgentId | AgentParams | UnsetType = UNSET
    environment_id: EnvironmentIdParam | UnsetType = UNSET
    initial_events: DeploymentInitialEvents | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    budget: ListCostBudget | UnsetType | None = UNSET
    description: Description | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET
    resources: DeploymentResourcesParams | UnsetType | None = UNSET
    schedule: ScheduleParams | UnsetType | None = UNSET
    vault_ids: VaultIds | UnsetType | None = UNSET


class RunError(Struct, frozen=True, kw_only=True):
    type: RunErrorType
    message: str


class ManualRun(Struct, frozen=True, kw_only=True, tag_field="type", tag="manual"):
    pass


class ScheduledRun(Struct, frozen=True, kw_only=True, tag_field="type", tag="schedule"):
    scheduled_at: datetime
    """The scheduled time, without jitter."""


TriggerContext: TypeAlias = ScheduledRun | ManualRun


class DeploymentRun(Struct, frozen=True, kw_only=True):
    id: str
    agent: AgentReference
    created_at: datetime
    deployment_id: str
    trigger_context: TriggerContext
    error: RunError | None = None
    session_id: str | None = None
    """Set unless there is an error."""
    type: Literal["deployment_run"] = "deployment_run"


def check_initial_events(events: tuple[InitialEvent, ...]) -> tuple[InitialEvent, ...]:
    """Raises: InvalidInput."""
    for index, event in enumerate(events):
        match event:
            case SendOutcome(rubric=TextRubric(content=content)):
                if len(content) > _MAX_RUBRIC_CHARS:
                    raise InvalidInput(
                        f"initial_events[{index}].rubric.content: at most {_MAX_RUBRIC_CHARS}"
                        " characters"
                    )
            case SendSystem():
                is_last = index == len(events) - 1
                if not is_last or not index or not isinstance(events[index - 1], SendMessage):
                    raise InvalidInput(
                        f"initial_events[{index}]: a system.message must come last, right after a"
                        " user.message"
                    )
            case _:
                pass
    return events
