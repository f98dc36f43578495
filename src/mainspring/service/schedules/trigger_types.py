"""Triggers as the API has them, the records they leave behind, and their message templates
(`{{body.issue.number}}`; no code, no conditions).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.core.ids import AgentId
from mainspring.service.resources.agent_multiagent import AgentReference
from mainspring.service.schedules.deployment_types import (
    DeploymentAgentParams,
    EnvironmentIdParam,
    Name,
    VaultIds,
)
from mainspring.service.webhooks.webhook_signing import SignatureScheme

Template = Annotated[str, Meta(min_length=1, max_length=32_768)]
Instructions = Annotated[str, Meta(max_length=32_768)]
KeyTemplate = Annotated[str, Meta(min_length=1, max_length=512)]
TriggerSecret = Annotated[str, Meta(min_length=16, max_length=1024)]


class Trigger(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    scheme: SignatureScheme
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
    scheme: SignatureScheme
    agent: AgentId | DeploymentAgentParams
    environment_id: EnvironmentIdParam
    message: Template
    instructions: Instructions = ""
    correlation: KeyTemplate | None = None
    vault_ids: VaultIds = ()
    secret: TriggerSecret | None = None
    """The sender's, if it has one already."""


class UpdateTrigger(Struct, frozen=True, kw_only=True):
    name: Name | UnsetType = UNSET
    agent: AgentId | DeploymentAgentParams | UnsetType = UNSET
    environment_id: EnvironmentIdParam | UnsetType = UNSET
    message: Template | UnsetType = UNSET
    instructions: Instructions | UnsetType = UNSET
    correlation: KeyTemplate | UnsetType | None = UNSET
    vault_ids: VaultIds | UnsetType = UNSET
    is_enabled: bool | UnsetType = UNSET
    secret: TriggerSecret | UnsetType = UNSET


class TriggerResult(Struct, frozen=True, kw_only=True):
    """What a sender is told."""

    status: Literal["started", "messaged", "duplicate", "challenged"]
    session_id: str | None = None
    challenge: str | UnsetType = UNSET
    """Slack wants to have it back."""
    type: Literal["trigger_fired"] = "trigger_fired"


class ReceivedDelivery(Struct, frozen=True, kw_only=True):
    """A delivery that was taken."""

    id: str
    trigger_id: str
    session_id: str
    forget_at: datetime


class TriggerConversation(Struct, frozen=True, kw_only=True):
    """Which session the deliveries of one correlation key go to."""

    id: str
    trigger_id: str
    session_id: str
    number: int
    """How many there were before: a session that has ended is followed by another."""


_PLACEHOLDER = re.compile(r"\{\{\s*([^{}\s]{1,200})\s*\}\}")
_PATH = re.compile(r"(?:body|headers)(?:\.[A-Za-z0-9_-]{1,64}){0,16}\??")
_SECRET_HEADERS = frozenset(
    ("authorization", "proxy-authorization", "cookie", "x-api-key", "webhook-signature")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateValues:
    body: Any  # JSON
    headers: Mapping[str, str]
    """By their names in lower case."""


def check_template(template: str, *, where: str) -> str:
    """Raises: InvalidInput: something in braces is no path."""
    for path in _PLACEHOLDER.findall(template):
        if not _PATH.fullmatch(path):
            raise InvalidInput(f"{where}: {path[:64]!r} is no path as body.issue.number")
        if path.removesuffix("?").lower().removeprefix("headers.") in _SECRET_HEADERS:
            raise InvalidInput(f"{where}: {path} may be a secret and stays outside")
    rest = _PLACEHOLDER.sub("", template)
    if "{{" in rest or "}}" in rest:
        raise InvalidInput(f"{where}: braces that belong to no path as {{{{body.issue.number}}}}")
    return template


def fill_template(template: str, values: TemplateValues, *, max_chars: int) -> str:
    """Raises: InvalidInput: what is asked for is not there. TooLarge."""
    text = _PLACEHOLDER.sub(lambda match: _render_value(match.group(1), values), template)
    if len(text) > max_chars:
        raise TooLarge(f"what came in makes {len(text)} characters; at most {max_chars} are taken")
    return text


def _render_value(path: str, values: TemplateValues) -> str:
    root, *steps = path.removesuffix("?").split(".")
    value: Any = values.body if root == "body" else values.headers
    for step in steps:
        found = _child_value(value, step)
        if found is None:
            if path.endswith("?"):
                return ""
            raise InvalidInput(f"{path}: what came in has none")
        [value] = found
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _child_value(value: Any, step: str) -> tuple[Any] | None:  # noqa: ANN401 (JSON)
    if isinstance(value, Mapping):
        held = cast("Mapping[str, Any]", value)
        return (held[step],) if step in held else None
    if isinstance(value, list) and step.isascii() and step.isdigit():
        items = cast("list[Any]", value)
        return (items[int(step)],) if int(step) < len(items) else None
    return None
