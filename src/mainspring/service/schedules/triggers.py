"""Triggers: signed calls from outside that start sessions or send messages to them; and their
message templates (`{{body.issue.number}}`; no code, no conditions). A sender without a valid
signature does not even learn whether the trigger exists."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, NotFound, TooLarge, Unauthenticated
from mainspring.core.ids import AgentId
from mainspring.core.ports import Seal
from mainspring.log.records import Records, Replace
from mainspring.service.access.tenants import Tenants
from mainspring.service.resources.agent_multiagent import AgentParams, AgentReference
from mainspring.service.schedules.deployment_store import DeploymentReferences
from mainspring.service.schedules.deployment_types import EnvironmentIdParam, Name, VaultIds
from mainspring.service.schedules.deployments import PinAgent, pin_agent
from mainspring.service.storage.metadata import apply_patch, copy_fields
from mainspring.service.storage.repository import IndexColumns, Repository, delete_children
from mainspring.service.webhooks.webhook_signing import (
    SECRET_BYTES,
    SignatureScheme,
    SignedRequest,
    StandardWebhooksSignature,
    is_genuine,
    new_secret,
    secret_key,
)

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
    """A template; all of its output is untrusted."""
    created_at: datetime
    updated_at: datetime
    instructions: str = ""
    """The operator's text before the message."""
    correlation: str | None = None
    """A template. Deliveries with the same output go to one session; without it, each starts its
    own."""
    vault_ids: tuple[str, ...] = ()
    is_enabled: bool = True
    type: Literal["trigger"] = "trigger"


class TriggerWithSecret(Trigger, frozen=True, kw_only=True):
    """Returned once, when the secret is created."""

    secret: str


class CreateTrigger(Struct, frozen=True, kw_only=True):
    name: Name
    scheme: SignatureScheme
    agent: AgentId | AgentParams
    environment_id: EnvironmentIdParam
    message: Template
    instructions: Instructions = ""
    correlation: KeyTemplate | None = None
    vault_ids: VaultIds = ()
    secret: TriggerSecret | None = None
    """The secret of the sender, if the sender sets its own."""


class UpdateTrigger(Struct, frozen=True, kw_only=True):
    name: Name | UnsetType = UNSET
    agent: AgentId | AgentParams | UnsetType = UNSET
    environment_id: EnvironmentIdParam | UnsetType = UNSET
    message: Template | UnsetType = UNSET
    instructions: Instructions | UnsetType = UNSET
    correlation: KeyTemplate | UnsetType | None = UNSET
    vault_ids: VaultIds | UnsetType = UNSET
    is_enabled: bool | UnsetType = UNSET
    secret: TriggerSecret | UnsetType = UNSET


class TriggerResult(Struct, frozen=True, kw_only=True):
    """The response to a sender."""

    status: Literal["started", "messaged", "duplicate", "challenged"]
    session_id: str | None = None
    challenge: str | UnsetType = UNSET
    """Returned when Slack verifies the URL."""
    type: Literal["trigger_fired"] = "trigger_fired"


class ReceivedDelivery(Struct, frozen=True, kw_only=True):
    """A delivery that was accepted."""

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
    """The number of earlier sessions: one that has ended is followed by another."""


_PLACEHOLDER = re.compile(r"\{\{\s*([^{}\s]{1,200})\s*\}\}")
_PATH = re.compile(r"(?:body|headers)(?:\.[A-Za-z0-9_-]{1,64}){0,16}\??")
_MISSING = object()
_SECRET_HEADERS = frozenset(
    ("authorization", "proxy-authorization", "cookie", "x-api-key", "webhook-signature")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateValues:
    body: Any  # JSON
    headers: Mapping[str, str]
    """By name in lower case."""


def check_template(template: str, *, where: str) -> str:
    """Raises: InvalidInput: something in braces is not a path."""
    for path in _PLACEHOLDER.findall(template):
        if not _PATH.fullmatch(path):
            raise InvalidInput(f"{where}: {path[:64]!r} is not a path like body.issue.number")
        if path.removesuffix("?").lower().removeprefix("headers.") in _SECRET_HEADERS:
            raise InvalidInput(f"{where}: {path} may contain a secret and cannot be used")
    text = _PLACEHOLDER.sub("", template)
    if "{{" in text or "}}" in text:
        raise InvalidInput(
            f"{where}: unmatched braces; a placeholder looks like {{{{body.issue.number}}}}"
        )
    return template


def fill_template(template: str, values: TemplateValues, *, max_chars: int) -> str:
    """Raises: InvalidInput: a requested value is missing. TooLarge."""
    text = _PLACEHOLDER.sub(lambda match: _render_value(match.group(1), values), template)
    if len(text) > max_chars:
        raise TooLarge(
            f"the delivery gives {len(text)} characters; at most {max_chars} are allowed"
        )
    return text


def _render_value(path: str, values: TemplateValues) -> str:
    root, *steps = path.removesuffix("?").split(".")
    value: Any = values.body if root == "body" else values.headers
    for step in steps:
        value = _child_value(value, step)
        if value is _MISSING:
            if path.endswith("?"):
                return ""
            raise InvalidInput(f"{path}: missing in the delivery")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _child_value(value: Any, step: str) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(step, _MISSING)
    if isinstance(value, list) and step.isascii() and step.isdigit():
        items = cast("list[Any]", value)
        return items[int(step)] if int(step) < len(items) else _MISSING
    return _MISSING


TRIGGER_KIND = "trigger"
DELIVERY_KIND = "trigger_delivery"
CONVERSATION_KIND = "trigger_conversation"
_DUMMY_SECRET = new_secret(bytes(SECRET_BYTES))
"""Used if there is no such trigger, so that the check takes equally long."""


class Triggers:
    def __init__(
        self, records: Records, *, seal: Seal, pin_agent: PinAgent, clock: Clock = clocks.now
    ) -> None:
        self.records = records
        self._repository = Repository(
            records, TRIGGER_KIND, Trigger, columns=_index_columns, clock=clock
        )
        self.get = self._repository.get
        self.page = self._repository.page
        self._seal = seal
        self._tenants = Tenants(records, clock=clock)
        self._pin_agent = pin_agent
        self._clock = clock

    async def create(self, tenant: str, request: CreateTrigger) -> TriggerWithSecret:
        """Raises: NotFound, InvalidInput."""
        now = self._clock()
        trigger = copy_fields(
            Trigger,
            request,
            id=ids.new_id("trg"),
            agent=await pin_agent(self._pin_agent, tenant, request.agent),
            created_at=now,
            updated_at=now,
        )
        secret = request.secret or new_secret(secrets.token_bytes(SECRET_BYTES))
        await self._check(tenant, trigger, secret)
        sealed = self._seal.seal(secret.encode(), _context(tenant, trigger.id))
        await self._repository.put(tenant, trigger, content=sealed)
        return copy_fields(TriggerWithSecret, trigger, secret=secret)

    async def update(self, tenant: str, trigger_id: str, request: UpdateTrigger) -> Trigger:
        """Raises: NotFound, InvalidInput."""
        agent = request.agent
        if agent is not UNSET:
            agent = await pin_agent(self._pin_agent, tenant, agent)
        secret = None if request.secret is UNSET else request.secret
        sealed = secret and self._seal.seal(secret.encode(), _context(tenant, trigger_id))

        async def prepare() -> tuple[Trigger, list[Replace]]:
            row = await self._repository.row(tenant, trigger_id)
            current = self._repository.read(row)
            changes = {"agent": current.agent if agent is UNSET else agent}
            trigger = apply_patch(current, request, **changes, updated_at=self._clock())
            await self._check(tenant, trigger, secret)
            return trigger, [self._repository.replace_change(row, trigger, content=sealed or None)]

        return await self._repository.transact(trigger_id, prepare)

    async def delete(self, tenant: str, trigger_id: str) -> None:
        """Delete a trigger; sessions that it started continue."""
        await self._repository.remove(tenant, trigger_id)
        for kind in (DELIVERY_KIND, CONVERSATION_KIND):
            await delete_children(self.records, kind, tenant=tenant, parent=trigger_id)

    async def authenticate(self, trigger_id: str, request: SignedRequest) -> tuple[str, Trigger]:
        """The tenant and the trigger of a delivery, if its signature is valid.

        Raises: Unauthenticated: it is not, or there is no such trigger, or it is disabled.
        """
        now = self._clock()
        try:
            row = await self.records.get(TRIGGER_KIND, trigger_id)
            sealed = await self.records.content(TRIGGER_KIND, trigger_id)
        except NotFound:
            is_genuine(StandardWebhooksSignature(), request, secret=_DUMMY_SECRET, now=now)
            raise _bad_signature() from None
        trigger = self._repository.read(row)
        secret = self._seal.unseal(sealed, _context(row.tenant, trigger_id)).decode()
        if not is_genuine(trigger.scheme, request, secret=secret, now=now):
            raise _bad_signature()
        if not trigger.is_enabled or await self._tenants.is_disabled(row.tenant):
            raise _bad_signature()
        return row.tenant, trigger

    async def _check(self, tenant: str, trigger: Trigger, secret: str | None) -> None:
        check_template(trigger.message, where="message")
        if trigger.correlation is not None:
            check_template(trigger.correlation, where="correlation")
        references = DeploymentReferences(self.records)
        await references.require(tenant, "environment", trigger.environment_id)
        for vault_id in trigger.vault_ids:
            await references.require(tenant, "vault", vault_id)
        if secret is not None and isinstance(trigger.scheme, StandardWebhooksSignature):
            secret_key(secret)


def _context(tenant: str, trigger_id: str) -> str:
    return f"trigger {tenant} {trigger_id}"


def _bad_signature() -> Unauthenticated:
    return Unauthenticated("there is no such trigger, or the signature is not valid")


def _index_columns(trigger: Trigger) -> IndexColumns:
    return IndexColumns(label="enabled" if trigger.is_enabled else "disabled")
