"""Deployments and webhooks on a store, for commands that run without the service. A worker executes
what they enqueue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.core.ports import PostResult
from mainspring.log.records import Records
from mainspring.service.jobs.dispatcher import no_enqueue
from mainspring.service.resources.agent_multiagent import AgentReference
from mainspring.service.schedules.deployment_runner import RunRepository, run_repository
from mainspring.service.schedules.deployment_store import DeploymentStore
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.webhooks.webhook_deliveries import Deliveries
from mainspring.service.webhooks.webhook_endpoints import Webhooks
from mainspring.service.webhooks.webhook_outbox import Outbox
from mainspring.wiring.user_vault import user_vault


@dataclass(frozen=True, slots=True)
class OfflineServices:
    deployments: Deployments
    runs: RunRepository
    webhooks: Webhooks
    deliveries: Deliveries


def offline_services(settings: Settings, records: Records) -> OfflineServices:
    seal = user_vault(settings)
    webhooks = Webhooks(records, seal=seal)
    outbox = Outbox(records, webhooks, put=no_enqueue)
    store = DeploymentStore(records, outbox=outbox, seal=seal, put=no_enqueue, clock=clock.now)
    return OfflineServices(
        deployments=Deployments(store, pin_agent=_reject_agent_pin),
        runs=run_repository(records),
        webhooks=webhooks,
        deliveries=Deliveries(records, webhooks, post=_leave_to_worker, put=no_enqueue),
    )


async def _reject_agent_pin(_tenant: str, agent_id: str, _version: int | None) -> AgentReference:
    raise InvalidInput(f"{agent_id}: deployments are made and changed through the API")


async def _leave_to_worker(url: str, *, headers: Mapping[str, str], body: bytes) -> PostResult:
    return PostResult(error="a worker sends it")
