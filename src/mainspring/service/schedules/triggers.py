"""Triggers: signed calls from outside that start sessions or speak to them.

Who cannot sign learns nothing, not even whether there is such a trigger. What comes in is data from
outside: it is marked as such where an agent reads it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from msgspec import UNSET
from msgspec.structs import asdict, replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import NotFound, StaleVersion, Unauthenticated
from mainspring.log.records import Records
from mainspring.service.access.tenants import Tenants
from mainspring.service.resources.agent_multiagent import AgentReference
from mainspring.service.schedules.deployment_references import DeploymentReferences
from mainspring.service.schedules.deployment_types import DeploymentAgentParams
from mainspring.service.schedules.deployments import PinAgent
from mainspring.service.schedules.trigger_types import (
    CreateTrigger,
    Trigger,
    TriggerWithSecret,
    UpdateTrigger,
    check_template,
)
from mainspring.service.storage.metadata import value_or_current
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import (
    IndexColumns,
    ListQuery,
    Repository,
    Seal,
    delete_children,
)
from mainspring.service.webhooks.webhook_signing import (
    SECRET_BYTES,
    SignedRequest,
    StandardWebhooksSignature,
    is_genuine,
    new_secret,
    secret_key,
)

TRIGGER_KIND = "trigger"
DELIVERY_KIND = "trigger_delivery"
CONVERSATION_KIND = "trigger_conversation"
_TRIES = 8
_DUMMY_SECRET = new_secret(bytes(SECRET_BYTES))
"""Checked against when there is no such trigger, so that it takes as long."""


class Triggers:
    def __init__(
        self,
        records: Records,
        *,
        seal: Seal,
        pin_agent: PinAgent,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.records = records
        self._repository = Repository(
            records, TRIGGER_KIND, Trigger, columns=_index_columns, clock=clock
        )
        self._seal = seal
        self._tenants = Tenants(records, clock=clock)
        self._pin_agent = pin_agent
        self._clock = clock
        self._new_id = new_id
        self._random = random

    async def create(self, tenant: str, request: CreateTrigger) -> TriggerWithSecret:
        """Raises: NotFound, InvalidInput."""
        now = self._clock()
        made = _check_trigger(
            Trigger(
                id=self._new_id("trg"),
                name=request.name,
                scheme=request.scheme,
                agent=await self._pin(tenant, request.agent),
                environment_id=request.environment_id,
                message=request.message,
                instructions=request.instructions,
                correlation=request.correlation,
                vault_ids=request.vault_ids,
                created_at=now,
                updated_at=now,
            )
        )
        await self._check(tenant, made)
        secret = request.secret or new_secret(self._random(SECRET_BYTES))
        _check_secret(made, secret)
        await self._repository.put(tenant, made, content=self._seal_secret(tenant, made.id, secret))
        return TriggerWithSecret(**asdict(made), secret=secret)

    async def get(self, tenant: str, trigger_id: str) -> Trigger:
        return await self._repository.get(tenant, trigger_id)

    async def page(self, tenant: str, list_query: ListQuery) -> Page[Trigger]:
        return await self._repository.page(tenant, list_query)

    async def update(self, tenant: str, trigger_id: str, request: UpdateTrigger) -> Trigger:
        """Raises: NotFound, InvalidInput."""
        agent = UNSET if request.agent is UNSET else await self._pin(tenant, request.agent)
        for _ in range(_TRIES):
            record = await self._repository.record(tenant, trigger_id)
            current = self._repository.read(record)
            made = _check_trigger(
                replace(
                    current,
                    name=value_or_current(request.name, current.name),
                    agent=value_or_current(agent, current.agent),
                    environment_id=value_or_current(request.environment_id, current.environment_id),
                    message=value_or_current(request.message, current.message),
                    instructions=value_or_current(request.instructions, current.instructions),
                    correlation=value_or_current(request.correlation, current.correlation),
                    vault_ids=value_or_current(request.vault_ids, current.vault_ids),
                    is_enabled=value_or_current(request.is_enabled, current.is_enabled),
                    updated_at=self._clock(),
                )
            )
            await self._check(tenant, made)
            sealed = None
            if request.secret is not UNSET:
                _check_secret(made, request.secret)
                sealed = self._seal_secret(tenant, trigger_id, request.secret)
            try:
                await self.records.write(
                    self._repository.replace_change(record, made, content=sealed)
                )
            except StaleVersion:
                continue
            return made
        raise StaleVersion(f"{TRIGGER_KIND} {trigger_id}: others kept changing it; try again")

    async def delete(self, tenant: str, trigger_id: str) -> None:
        """Sessions that it has started go on."""
        await self._repository.remove(tenant, trigger_id)
        for kind in (DELIVERY_KIND, CONVERSATION_KIND):
            await delete_children(self.records, kind, tenant=tenant, parent=trigger_id)

    async def authenticate(self, trigger_id: str, request: SignedRequest) -> tuple[str, Trigger]:
        """The tenant and the trigger that a delivery is for, if its signature holds.

        Raises: Unauthenticated: it does not, or there is none, or it is disabled.
        """
        now = self._clock()
        try:
            record = await self.records.get(TRIGGER_KIND, trigger_id)
            secret = self._unseal_secret(
                record.tenant, trigger_id, await self.records.content(TRIGGER_KIND, trigger_id)
            )
        except NotFound:
            is_genuine(StandardWebhooksSignature(), request, secret=_DUMMY_SECRET, now=now)
            raise _bad_signature() from None
        trigger = self._repository.read(record)
        if not is_genuine(trigger.scheme, request, secret=secret, now=now):
            raise _bad_signature()
        if not trigger.is_enabled or await self._tenants.is_disabled(record.tenant):
            raise _bad_signature()
        return record.tenant, trigger

    async def _check(self, tenant: str, trigger: Trigger) -> None:
        references = DeploymentReferences(self.records)
        await references.require(tenant, "environment", trigger.environment_id)
        for vault_id in trigger.vault_ids:
            await references.require(tenant, "vault", vault_id)

    async def _pin(self, tenant: str, params: str | DeploymentAgentParams) -> AgentReference:
        if isinstance(params, str):
            return await self._pin_agent(tenant, params, None)
        return await self._pin_agent(tenant, params.id, params.version)

    def _seal_secret(self, tenant: str, trigger_id: str, secret: str) -> bytes:
        return self._seal.seal(secret.encode(), f"trigger {tenant} {trigger_id}")

    def _unseal_secret(self, tenant: str, trigger_id: str, sealed: bytes) -> str:
        return self._seal.unseal(sealed, f"trigger {tenant} {trigger_id}").decode()


def _bad_signature() -> Unauthenticated:
    return Unauthenticated("there is no such trigger, or the signature does not hold")


def _check_trigger(trigger: Trigger) -> Trigger:
    check_template(trigger.message, where="message")
    if trigger.correlation is not None:
        check_template(trigger.correlation, where="correlation")
    return trigger


def _check_secret(trigger: Trigger, secret: str) -> None:
    if isinstance(trigger.scheme, StandardWebhooksSignature):
        secret_key(secret)


def _index_columns(trigger: Trigger) -> IndexColumns:
    return IndexColumns(label="enabled" if trigger.is_enabled else "disabled")
