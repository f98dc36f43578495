"""The record of a session beside its log: how it was requested. Its state is in the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core.sender import UNKNOWN_ORIGIN, Origin
from mainspring.service.access.principal import Principal
from mainspring.service.resources.environments import EnvironmentConfig
from mainspring.service.sessions.resource_types import SessionResource, StoreResource
from mainspring.service.sessions.session_agent import SessionAgent
from mainspring.service.storage.metadata import Metadata
from mainspring.service.storage.repository import IndexColumns

ACCEPTED_KIND = "accepted_request"
Title = Annotated[str, Meta(max_length=512)]


class Money(Struct, frozen=True, kw_only=True):
    amount: Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,14})$")]
    """An amount in cents: "2500" is 25 dollars."""
    currency: Literal["USD"]


class ListCostBudget(Struct, frozen=True, kw_only=True, tag_field="type", tag="limit"):
    max_list_cost: Money


class SessionCreator(Struct, frozen=True, kw_only=True):
    key_id: str
    name: str
    acting_agent: str | None = None

    @classmethod
    def of(cls, principal: Principal) -> SessionCreator:
        return cls(
            key_id=principal.key_id, name=principal.name, acting_agent=principal.acting_agent
        )


class SessionRecord(Struct, frozen=True, kw_only=True):
    id: str
    agent: SessionAgent
    environment_id: str
    environment: EnvironmentConfig
    """The environment as it was when the session was created."""
    created_at: datetime
    updated_at: datetime
    created_by: SessionCreator
    title: str | None = None
    metadata: Metadata = {}
    vault_ids: tuple[str, ...] = ()
    resources: tuple[SessionResource, ...] = ()
    sealed: dict[str, bytes] = {}
    """Tokens of repositories by the ids of the resources, each sealed for `token_context`."""
    budget: ListCostBudget | None = None
    deployment_id: str | None = None
    origin: Origin | None = None
    """`None` if the session was created before origins were recorded."""
    workflow_run_id: str | None = None
    """Of the run of a workflow and of the sessions of its nodes: the id of the run."""
    started_by: str | None = None
    """Of a run that an agent started, and of the sessions of its nodes: the agent's session, in
    whose workspace they work."""
    archived_at: datetime | None = None
    archived_threads: dict[str, datetime] = {}

    @property
    def workspace_name(self) -> str:
        """The name of the folder of its workspace."""
        return self.started_by or self.id


class AcceptedRequest(Struct, frozen=True, kw_only=True):
    """An accepted request, stored under its idempotency key, because a client may repeat it."""

    id: str
    session_id: str
    client_ids: tuple[str | None, ...]
    """The client ids of its events, which the inbox accepts once each; `None`: no deduplication."""
    about: tuple[str, ...] = ()
    """The type and the target of each event: the key is refused for other events."""


def index_columns(session: SessionRecord) -> IndexColumns:
    return IndexColumns(
        parent=session.deployment_id or _run_of_node(session),
        label=session.agent.id,
        is_archived=session.archived_at is not None,
        created=session.created_at,
        filters=tuple(_filters(session)),
    )


AGENT_FILTER, VERSION_FILTER, DEPLOYMENT_FILTER = "agent", "agent_version", "deployment"
ORIGIN_FILTER, STORE_FILTER = "origin", "memory_store"


def version_value(agent_id: str, version: int) -> str:
    return f"{agent_id}:{version}"


def _filters(session: SessionRecord) -> Iterator[tuple[str, str]]:
    """What lists of sessions can be filtered by, beside the status, which follows the log."""
    yield AGENT_FILTER, session.agent.id
    yield VERSION_FILTER, version_value(session.agent.id, session.agent.version)
    yield ORIGIN_FILTER, (session.origin or UNKNOWN_ORIGIN).type
    if parent := session.deployment_id or _run_of_node(session):
        yield DEPLOYMENT_FILTER, parent
    for resource in session.resources:
        if isinstance(resource, StoreResource):
            yield STORE_FILTER, resource.memory_store_id


def _run_of_node(session: SessionRecord) -> str:
    run_id = session.workflow_run_id
    return "" if run_id is None or run_id == session.id else run_id
