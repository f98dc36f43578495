"""Requests to create, fork and update a session, and how an update changes its record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core.errors import InvalidInput
from mainspring.core.events import SessionUpdated
from mainspring.core.ids import EnvironmentId, VaultId
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.events.event_content import InitialEvents
from mainspring.service.sessions.resource_types import ResourcesParams
from mainspring.service.sessions.session_agent import (
    AgentChoice,
    SessionAgent,
    UpdateSessionAgent,
    models_of,
    update_session_agent,
)
from mainspring.service.sessions.session_record import ListCostBudget, SessionRecord, Title
from mainspring.service.storage.metadata import Metadata, MetadataPatch, patch_metadata


class CreateSession(Struct, frozen=True, kw_only=True):
    agent: AgentChoice
    environment_id: EnvironmentId
    budget: ListCostBudget | None = None
    initial_events: InitialEvents = ()
    metadata: Metadata | None = None
    resources: ResourcesParams = ()
    title: Title | None = None
    vault_ids: tuple[VaultId, ...] = ()


class ForkSession(Struct, frozen=True, kw_only=True):
    at: Annotated[int, Meta(ge=1)] | None = None
    """The position in the log of the last event that both sessions share: the `id` that streams
    send. If absent, all events."""
    title: Title | None = None


class UpdateSession(Struct, frozen=True, kw_only=True):
    agent: UpdateSessionAgent | UnsetType = UNSET
    budget: ListCostBudget | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET
    title: Title | UnsetType | None = UNSET
    vault_ids: tuple[VaultId, ...] | UnsetType = UNSET


def check_models_priced(agent: SessionAgent, is_priced: Callable[[str], bool]) -> None:
    """Raises: InvalidInput: a model has no price, so a budget cannot be enforced."""
    for model in sorted(models_of(agent)):
        if not is_priced(model):
            raise InvalidInput(f"budget: model_not_budgetable: {model} has no list price")


def apply_update(
    principal: Principal, current: SessionRecord, request: UpdateSession, spent_cents: int
) -> SessionRecord:
    """Raises: InvalidInput, Forbidden: an agent may not change its own tools or budget."""
    if not (isinstance(request.agent, UnsetType) and isinstance(request.budget, UnsetType)):
        principal.require_human()
    agent = current.agent
    if not isinstance(request.agent, UnsetType):
        agent = update_session_agent(agent, request.agent)
    budget = current.budget
    if not isinstance(request.budget, UnsetType):
        budget = request.budget
        _check_budget(current.budget, budget, spent_cents)
    return replace(
        current,
        agent=agent,
        budget=budget,
        metadata=patch_metadata(current.metadata, request.metadata),
        title=current.title if isinstance(request.title, UnsetType) else request.title,
    )


def _check_budget(
    current: ListCostBudget | None, request: ListCostBudget | None, spent_cents: int
) -> None:
    if request is None:
        return
    if current is None:
        raise InvalidInput("budget: budget_create_only: this session was created without one")
    if int(request.max_list_cost.amount) <= spent_cents:
        raise InvalidInput(
            f"budget: budget_not_raised: {spent_cents} cents have already been spent"
        )


def session_updated_event(before: SessionRecord, after: SessionRecord) -> SessionUpdated | None:
    """The event that records the change; `None` if nothing changed."""

    def new(name: str) -> Any:  # noqa: ANN401 (any field, as plain JSON)
        value = getattr(after, name)
        return None if value == getattr(before, name) else msgspec.to_builtins(value)

    same = all(
        getattr(before, name) == getattr(after, name)
        for name in ("title", "metadata", "agent", "budget")
    )
    if same:
        return None
    return SessionUpdated(
        title=new("title"), metadata=new("metadata"), agent=new("agent"), budget=new("budget")
    )
