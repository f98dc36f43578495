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
from mainspring.core.errors import NotFound, Stale, Unauthenticated
from mainspring.log.records import Records
from mainspring.service.access.tenants import Tenants
from mainspring.service.calendar.deployments import PinAgent
from mainspring.service.calendar.model import AgentAsked
from mainspring.service.calendar.references import References
from mainspring.service.calendar.templates import checked
from mainspring.service.calendar.trigger_model import (
    CreateTrigger,
    Trigger,
    TriggerWithSecret,
    UpdateTrigger,
)
from mainspring.service.describing.agent_roster import AgentReference
from mainspring.service.keeping.drawer import Drawer, Listing, Tabs
from mainspring.service.keeping.page import Page
from mainspring.service.keeping.patching import given
from mainspring.service.keeping.seal import Seal
from mainspring.service.keeping.sweeping import sweep
from mainspring.service.mail.signing import (
    SECRET_BYTES,
    Delivered,
    StandardWebhooks,
    is_genuine,
    new_secret,
    secret_key,
)

KIND = "trigger"
REMEMBERED = "trigger_delivery"
CONVERSATION = "trigger_conversation"
_TRIES = 8
_NOBODYS = new_secret(bytes(SECRET_BYTES))
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
        self._drawer = Drawer(records, KIND, Trigger, tabs=_tabs, clock=clock)
        self._seal = seal
        self._tenants = Tenants(records, clock=clock)
        self._pin_agent = pin_agent
        self._clock = clock
        self._new_id = new_id
        self._random = random

    async def create(self, tenant: str, asked: CreateTrigger) -> TriggerWithSecret:
        """Raises: NotFound, InvalidInput."""
        now = self._clock()
        made = _sound(
            Trigger(
                id=self._new_id("trg"),
                name=asked.name,
                scheme=asked.scheme,
                agent=await self._pin(tenant, asked.agent),
                environment_id=asked.environment_id,
                message=asked.message,
                instructions=asked.instructions,
                correlation=asked.correlation,
                vault_ids=asked.vault_ids,
                created_at=now,
                updated_at=now,
            )
        )
        await self._check(tenant, made)
        secret = asked.secret or new_secret(self._random(SECRET_BYTES))
        _check_secret(made, secret)
        await self._drawer.put(tenant, made, content=self._sealed(tenant, made.id, secret))
        return TriggerWithSecret(**asdict(made), secret=secret)

    async def get(self, tenant: str, trigger_id: str) -> Trigger:
        return await self._drawer.get(tenant, trigger_id)

    async def page(self, tenant: str, listing: Listing) -> Page[Trigger]:
        return await self._drawer.page(tenant, listing)

    async def update(self, tenant: str, trigger_id: str, asked: UpdateTrigger) -> Trigger:
        """Raises: NotFound, InvalidInput."""
        agent = UNSET if asked.agent is UNSET else await self._pin(tenant, asked.agent)
        for _ in range(_TRIES):
            record = await self._drawer.record(tenant, trigger_id)
            known = self._drawer.read(record)
            made = _sound(
                replace(
                    known,
                    name=given(asked.name, known.name),
                    agent=given(agent, known.agent),
                    environment_id=given(asked.environment_id, known.environment_id),
                    message=given(asked.message, known.message),
                    instructions=given(asked.instructions, known.instructions),
                    correlation=given(asked.correlation, known.correlation),
                    vault_ids=given(asked.vault_ids, known.vault_ids),
                    is_enabled=given(asked.is_enabled, known.is_enabled),
                    updated_at=self._clock(),
                )
            )
            await self._check(tenant, made)
            sealed = None
            if asked.secret is not UNSET:
                _check_secret(made, asked.secret)
                sealed = self._sealed(tenant, trigger_id, asked.secret)
            try:
                await self.records.write(self._drawer.replacing(record, made, content=sealed))
            except Stale:
                continue
            return made
        raise Stale(f"{KIND} {trigger_id}: others kept changing it; try again")

    async def delete(self, tenant: str, trigger_id: str) -> None:
        """Sessions that it has started go on."""
        await self._drawer.remove(tenant, trigger_id)
        for kind in (REMEMBERED, CONVERSATION):
            await sweep(self.records, kind, tenant=tenant, parent=trigger_id)

    async def known(self, trigger_id: str, delivered: Delivered) -> tuple[str, Trigger]:
        """The tenant and the trigger that a delivery is for, if its signature holds.

        Raises: Unauthenticated: it does not, or there is none, or it is disabled.
        """
        now = self._clock()
        try:
            record = await self.records.get(KIND, trigger_id)
            secret = self._opened(
                record.tenant, trigger_id, await self.records.content(KIND, trigger_id)
            )
        except NotFound:
            is_genuine(StandardWebhooks(), delivered, secret=_NOBODYS, now=now)
            raise _refused() from None
        trigger = self._drawer.read(record)
        if not is_genuine(trigger.scheme, delivered, secret=secret, now=now):
            raise _refused()
        if not trigger.is_enabled or await self._tenants.is_disabled(record.tenant):
            raise _refused()
        return record.tenant, trigger

    async def _check(self, tenant: str, trigger: Trigger) -> None:
        references = References(self.records)
        await references.require(tenant, "environment", trigger.environment_id)
        for vault_id in trigger.vault_ids:
            await references.require(tenant, "vault", vault_id)

    async def _pin(self, tenant: str, asked: str | AgentAsked) -> AgentReference:
        if isinstance(asked, str):
            return await self._pin_agent(tenant, asked, None)
        return await self._pin_agent(tenant, asked.id, asked.version)

    def _sealed(self, tenant: str, trigger_id: str, secret: str) -> bytes:
        return self._seal.seal(secret.encode(), f"trigger {tenant} {trigger_id}")

    def _opened(self, tenant: str, trigger_id: str, sealed: bytes) -> str:
        return self._seal.unseal(sealed, f"trigger {tenant} {trigger_id}").decode()


def _refused() -> Unauthenticated:
    return Unauthenticated("there is no such trigger, or the signature does not hold")


def _sound(trigger: Trigger) -> Trigger:
    checked(trigger.message, where="message")
    if trigger.correlation is not None:
        checked(trigger.correlation, where="correlation")
    return trigger


def _check_secret(trigger: Trigger, secret: str) -> None:
    if isinstance(trigger.scheme, StandardWebhooks):
        secret_key(secret)


def _tabs(trigger: Trigger) -> Tabs:
    return Tabs(label="enabled" if trigger.is_enabled else "disabled")
