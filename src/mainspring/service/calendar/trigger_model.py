"""Triggers as the API has them, and what they leave behind: the words only."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.core.ids import AgentId
from mainspring.service.calendar.model import AgentAsked, EnvironmentAsked, Name, VaultIds
from mainspring.service.describing.agent_roster import AgentReference
from mainspring.service.mail.signing import Scheme

Template = Annotated[str, Meta(min_length=1, max_length=32_768)]
Instructions = Annotated[str, Meta(max_length=32_768)]
KeyTemplate = Annotated[str, Meta(min_length=1, max_length=512)]
Secret = Annotated[str, Meta(min_length=16, max_length=1024)]


class Trigger(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    scheme: Scheme
    agent: AgentReference
    environment_id: str
    message: str
    """A template; all of what it becomes is taken for untrusted."""
    created_at: datetime
    updated_at: datetime
    instructions: str = ""
    """What stands before the message, as it is here: the operator's own words."""
    correlation: str | None = None
    """A template. Deliveries for which it becomes the same go to one session; without it, each
    starts its own."""
    vault_ids: tuple[str, ...] = ()
    is_enabled: bool = True
    type: Literal["trigger"] = "trigger"


class TriggerWithSecret(Trigger, frozen=True, kw_only=True):
    """As it is answered once, when the secret is made."""

    secret: str


class CreateTrigger(Struct, frozen=True, kw_only=True):
    name: Name
    scheme: Scheme
    agent: AgentId | AgentAsked
    environment_id: EnvironmentAsked
    message: Template
    instructions: Instructions = ""
    correlation: KeyTemplate | None = None
    vault_ids: VaultIds = ()
    secret: Secret | None = None
    """The sender's, if it has one already."""


class UpdateTrigger(Struct, frozen=True, kw_only=True):
    name: Name | UnsetType = UNSET
    agent: AgentId | AgentAsked | UnsetType = UNSET
    environment_id: EnvironmentAsked | UnsetType = UNSET
    message: Template | UnsetType = UNSET
    instructions: Instructions | UnsetType = UNSET
    correlation: KeyTemplate | UnsetType | None = UNSET
    vault_ids: VaultIds | UnsetType = UNSET
    is_enabled: bool | UnsetType = UNSET
    secret: Secret | UnsetType = UNSET


class Fired(Struct, frozen=True, kw_only=True):
    """What a sender is told."""

    status: Literal["started", "messaged", "duplicate", "challenged"]
    session_id: str | None = None
    challenge: str | UnsetType = UNSET
    """Slack wants to have it back."""
    type: Literal["trigger_fired"] = "trigger_fired"


class Remembered(Struct, frozen=True, kw_only=True):
    """A delivery that was taken."""

    id: str
    trigger_id: str
    session_id: str
    forget_at: datetime


class Conversation(Struct, frozen=True, kw_only=True):
    """Which session the deliveries of one correlation key go to."""

    id: str
    trigger_id: str
    session_id: str
    number: int
    """How many there were before: a session that has ended is followed by another."""
