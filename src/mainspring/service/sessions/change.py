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
from mainspring.service.keeping.metadata import MetadataPatch, patched
from mainspring.service.sessions.agent import SessionAgent, UpdateSessionAgent, models_of, updated
from mainspring.service.sessions.record import Budget, SessionRecord, Title


class UpdateSession(Struct, frozen=True, kw_only=True):
    agent: UpdateSessionAgent | UnsetType = UNSET
    budget: Budget | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET
    title: Title | UnsetType | None = UNSET
    vault_ids: tuple[VaultId, ...] | UnsetType = UNSET


def check_budgetable(agent: SessionAgent, is_priced: Callable[[str], bool]) -> None:
    """Raises: InvalidInput: one of the models that may run has no price, so nothing can be kept."""
    for model in sorted(models_of(agent)):
        if not is_priced(model):
            raise InvalidInput(f"budget: model_not_budgetable: {model} has no list price")


def changed(
    who: Principal, known: SessionRecord, asked: UpdateSession, spent_cents: int
) -> SessionRecord:
    """Raises: InvalidInput, Forbidden: an agent would let itself do more."""
    if not (isinstance(asked.agent, UnsetType) and isinstance(asked.budget, UnsetType)):
        who.require_human()
    agent = known.agent
    if not isinstance(asked.agent, UnsetType):
        agent = updated(agent, asked.agent)
    budget = known.budget
    if not isinstance(asked.budget, UnsetType):
        budget = asked.budget
        _check_budget(known.budget, budget, spent_cents)
    return replace(
        known,
        agent=agent,
        budget=budget,
        metadata=patched(known.metadata, asked.metadata),
        title=known.title if isinstance(asked.title, UnsetType) else asked.title,
    )


def _check_budget(known: Budget | None, asked: Budget | None, spent_cents: int) -> None:
    if asked is None:
        return
    if known is None:
        raise InvalidInput("budget: budget_create_only: this session was made without one")
    if int(asked.max_list_cost.amount) <= spent_cents:
        raise InvalidInput(f"budget: budget_not_raised: {spent_cents} cents are spent already")


def told(before: SessionRecord, after: SessionRecord) -> SessionUpdated | None:
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
