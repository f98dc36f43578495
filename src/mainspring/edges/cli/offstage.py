"""Deployments and webhooks over a store, without an engine: a worker does what is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.log.records import Records
from mainspring.service.calendar.deployments import Deployments
from mainspring.service.calendar.keep import DeploymentKeep
from mainspring.service.calendar.runs import DeploymentRuns
from mainspring.service.describing.agent_roster import AgentReference
from mainspring.service.mail.deliveries import Deliveries, Posted
from mainspring.service.mail.outbox import Outbox
from mainspring.service.mail.webhooks import Webhooks
from mainspring.service.work.jobs import unqueued
from mainspring.wiring.seals import open_seal


@dataclass(frozen=True, slots=True)
class LazySeal:
    """The seal of these settings, opened when something is to be sealed: to look needs no key."""

    settings: Settings

    def seal(self, plain: bytes, context: str) -> bytes:
        return open_seal(self.settings).seal(plain, context)

    def unseal(self, sealed: bytes, context: str) -> bytes:
        return open_seal(self.settings).unseal(sealed, context)


@dataclass(frozen=True, slots=True)
class Offstage:
    deployments: Deployments
    runs: DeploymentRuns
    webhooks: Webhooks
    deliveries: Deliveries


def offstage(settings: Settings, records: Records) -> Offstage:
    seal = LazySeal(settings)
    webhooks = Webhooks(records, seal=seal)
    outbox = Outbox(records, webhooks, put=unqueued)
    keep = DeploymentKeep(records, outbox=outbox, seal=seal, put=unqueued, clock=clock.now)
    return Offstage(
        deployments=Deployments(keep, pin_agent=_unpinned),
        runs=DeploymentRuns(records),
        webhooks=webhooks,
        deliveries=Deliveries(records, webhooks, post=_unposted, put=unqueued),
    )


async def _unpinned(_tenant: str, agent_id: str, _version: int | None) -> AgentReference:
    raise InvalidInput(f"{agent_id}: deployments are made and changed through the API")


async def _unposted(url: str, *, headers: Mapping[str, str], body: bytes) -> Posted:
    return Posted(error="a worker sends it")
