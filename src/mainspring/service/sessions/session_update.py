"""Changing how a session was asked for: what may be, and what the log is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core.errors import InvalidInput
from mainspring.core.events import SessionUpdated
from mainspring.core.ids import VaultId
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.session_agent import (
    SessionAgent,
    UpdateSessionAgent,
    models_of,
    update_session_agent,
)
from mainspring.service.sessions.session_record import ListCostBudget, SessionRecord, Title
from mainspring.service.storage.metadata import MetadataPatch, patch_metadata


class UpdateSession(Struct, frozen=True, kw_only=True):
    agent: UpdateSessionAgent | UnsetType = UNSET
    budget: ListCostBudget | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET
    title: Title | UnsetType | None = UNSET
    vault_ids: tuple[VaultId, ...] | UnsetType = UNSET


def check_models_priced(agent: SessionAgent, is_priced: Callable[[str], bool]) -> None:
    """Raises: InvalidInput: one of the models that may run has no price, so nothing can be kept."""
    for model in sorted(models_of(agent)):
        if not is_priced(model):
            raise InvalidInput(f"budget: model_not_budgetable: {model} has no list price")


def apply_update(
    who: Principal, known: SessionRecord, asked: UpdateSession, spent_cents: int
) -> SessionRecord:
    """Raises: InvalidInput, Forbidden: an agent would let itself do more."""
    if not (isinstance(asked.agent, UnsetType) and isinstance(asked.budget, UnsetType)):
        who.require_human()
    agent = known.agent
    if not isinstance(asked.agent, UnsetType):
        agent = update_session_agent(agent, asked.agent)
    budget = known.budget
    if not isinstance(asked.budget, UnsetType):
        budget = asked.budget
        _check_budget(known.budget, budget, spent_cents)
    return replace(
        known,
        agent=agent,
        budget=budget,
        metadata=patch_metadata(known.metadata, asked.metadata),
        title=known.title if isinstance(asked.title, UnsetType) else asked.title,
    )


def _check_budget(
    known: ListCostBudget | None, asked: ListCostBudget | None, spent_cents: int
) -> None:
    if asked is None:
        return
    if known is None:
        raise InvalidInput("budget: budget_create_only: this session was made without one")
    if int(asked.max_list_cost.amount) <= spent_cents:
        raise InvalidInput(f"budget: budget_not_raised: {spent_cents} cents are spent already")


def session_updated_event(before: SessionRecord, after: SessionRecord) -> SessionUpdated | None:
    """What has changed, as the log is told; `None`: nothing."""

    def new(name: str) -> Any:  # noqa: ANN401 (plain JSON of whatever it is)
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
