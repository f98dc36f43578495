"""Webhook events: the event types of the Managed Agents API, and which events of a log become one.
An event names what happened to which resource; for more, receivers call the API."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.core.ids import stable_id
from mainspring.service.sessions.events.wire_events import wire_type
from mainspring.service.storage.repository import Notification

EventType: TypeAlias = Literal[
    "agent.archived",
    "agent.created",
    "agent.deleted",
    "agent.updated",
    "deployment.archived",
    "deployment.created",
    "deployment.deleted",
    "deployment.paused",
    "deployment.unpaused",
    "deployment.updated",
    "deployment_run.failed",
    "deployment_run.started",
    "deployment_run.succeeded",
    "environment.archived",
    "environment.created",
    "environment.deleted",
    "environment.updated",
    "mainspring.alarm_cleared",
    "mainspring.alarm_raised",
    "mainspring.approval_escalated",
    "mainspring.approval_expired",
    "mainspring.workflow_run_ended",
    "mainspring.workflow_run_waiting",
    "mainspring.workspace_expiring",
    "mainspring.workspace_removed",
    "memory_store.archived",
    "memory_store.created",
    "memory_store.deleted",
    "session.archived",
    "session.budget_reached",
    "session.created",
    "session.deleted",
    "session.idled",
    "session.outcome_evaluation_ended",
    "session.pending",
    "session.requires_action",
    "session.running",
    "session.status_idled",
    "session.status_rescheduled",
    "session.status_run_started",
    "session.status_terminated",
    "session.thread_created",
    "session.thread_idled",
    "session.thread_terminated",
    "session.updated",
    "vault.archived",
    "vault.created",
    "vault.deleted",
    "vault_credential.archived",
    "vault_credential.created",
    "vault_credential.deleted",
    "vault_credential.refresh_failed",
]
"""Types that begin with `mainspring` are extensions; their id is the alarm's, approval's or
session's."""
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
PING = "mainspring.ping"
"""An extension: sent on request, to test an endpoint."""

TYPES_BY_OPERATION: dict[str, EventType] = {
    "post /v1/agents": "agent.created",
    "post /v1/agents/{agent_id}": "agent.updated",
    "post /v1/agents/{agent_id}/archive": "agent.archived",
    "delete /v1/agents/{agent_id}": "agent.deleted",
    "post /v1/environments": "environment.created",
    "post /v1/environments/{environment_id}": "environment.updated",
    "post /v1/environments/{environment_id}/archive": "environment.archived",
    "delete /v1/environments/{environment_id}": "environment.deleted",
    "post /v1/memory_stores": "memory_store.created",
    "post /v1/memory_stores/{memory_store_id}/archive": "memory_store.archived",
    "delete /v1/memory_stores/{memory_store_id}": "memory_store.deleted",
}
"""The event of a successful request, by `Route.operation`, unless its service sends one itself."""


class WebhookEventData(Struct, frozen=True, kw_only=True):
    """`data` of an event. A tenant is one organization with one workspace."""

    type: str
    id: str
    organization_id: str
    workspace_id: str
    session_thread_id: str | UnsetType = UNSET
    vault_id: str | UnsetType = UNSET


class WebhookEvent(Struct, frozen=True, kw_only=True):
    id: str
    created_at: datetime
    data: WebhookEventData
    type: Literal["event"] = "event"

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


TYPES_BY_LOG_TYPE: dict[str, tuple[EventType, ...]] = {
    "session.status_running": ("session.status_run_started", "session.running"),
    "session.status_idle": (
        "session.status_idled",
        "session.idled",
        "session.requires_action",
        "session.budget_reached",
    ),
    "session.status_rescheduled": ("session.status_rescheduled", "session.pending"),
    "session.status_terminated": ("session.status_terminated",),
    "session.thread_created": ("session.thread_created",),
    "session.thread_status_idle": ("session.thread_idled",),
    "session.thread_status_terminated": ("session.thread_terminated",),
    "workflow_run.status_ended": ("mainspring.workflow_run_ended",),
    "workflow_run.status_idle": ("mainspring.workflow_run_waiting",),
    "span.outcome_evaluation_end": ("session.outcome_evaluation_ended",),
}
"""Webhook events by the type of a log event. The session service itself reports that a session
was created, updated, archived or deleted."""
_TYPE_BY_STOP_REASON = {
    "session.requires_action": "requires_action",
    "session.budget_reached": "budget_reached",
}


def webhook_events_of(event: Event, *, tenant: str, main_thread_id: str) -> list[WebhookEvent]:
    """The webhook events of an event in a session's log; always with the same ids."""
    type_name = wire_type(event, main_thread_id=main_thread_id)
    thread_id = getattr(event.payload, "session_thread_id", None)
    if type_name != event.type:
        thread_id = event.thread_id
    if thread_id == main_thread_id:  # the events of the session itself cover the main thread
        return []
    return [
        WebhookEvent(
            id=stable_id("whe", tenant, event.id, type_),
            created_at=event.time,
            data=WebhookEventData(
                type=type_,
                id=event.session_id,
                organization_id=tenant,
                workspace_id=tenant,
                session_thread_id=thread_id or UNSET,
            ),
        )
        for type_ in TYPES_BY_LOG_TYPE.get(type_name, ())
        if not isinstance(event.payload, events.StatusIdle)
        or _TYPE_BY_STOP_REASON.get(type_) in (None, event.payload.stop_reason.type)
    ]


def notification_event(notification: Notification, *, id_: str, now: datetime) -> WebhookEvent:
    return WebhookEvent(
        id=id_,
        created_at=now,
        data=WebhookEventData(
            type=notification.type,
            id=notification.id,
            organization_id=notification.tenant,
            workspace_id=notification.tenant,
            vault_id=notification.vault_id or UNSET,
        ),
    )
