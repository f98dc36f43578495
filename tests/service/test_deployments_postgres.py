"""Schedules and webhooks on PostgreSQL, with several workers at once."""

from tests.at_once import at_once
from tests.service.schedule_setup import TENANT, assembled, furnish

from mainspring.capabilities.network.outbound_http import HttpPoster
from mainspring.core.content import TextBlock
from mainspring.core.events import StatusIdle, StatusRunning, StopReason
from mainspring.log.postgres import open_postgres
from mainspring.log.session_log import SessionLog
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.schedules.cron import SchedulePolicy
from mainspring.service.schedules.deployment_types import CreateDeployment, ScheduleParams
from mainspring.service.sessions.events.event_content import SendMessage
from mainspring.service.storage.repository import ListQuery
from mainspring.service.webhooks.webhook_deliveries import DeliveryRetryPolicy
from mainspring.service.webhooks.webhook_endpoints import CreateWebhook
from mainspring.service.webhooks.webhook_events import EVENT_TYPES


async def test_concurrent_workers_start_one_session_and_notify_once(postgres_url: str):
    async with open_postgres(postgres_url) as store:
        log = SessionLog(store)
        made = assembled(store.records, log, poster=HttpPoster(), patience=DeliveryRetryPolicy())
        await furnish(made)
        await made.webhooks.create(
            TENANT, CreateWebhook(url="https://example.com/", event_types=EVENT_TYPES)
        )
        deployment = await made.deployments.create(
            TENANT,
            CreateDeployment(
                agent="agent_1",
                environment_id=made.environment_id,
                name="hourly",
                initial_events=(SendMessage(content=(TextBlock("go"),)),),
                schedule=ScheduleParams(
                    expression="0 * * * *", timezone="UTC", policy=SchedulePolicy(jitter_seconds=0)
                ),
            ),
        )
        made.clock.pass_by(minutes=1)
        job = Job(task="fire", key=deployment.id, tenant=TENANT)
        await at_once(lambda _: made.firing.fire(job), range(5))
        assert len((await made.runs.page(TENANT, ListQuery())).data) == 1
        assert len(made.sessions.orders) == 1

        session = await log.create()
        writer = await log.hold(session.id, owner="w")
        await writer.append(StatusRunning(), StatusIdle(stop_reason=StopReason(type="end_turn")))
        await at_once(lambda _: made.news.catch_up(TENANT, session.id), range(5))
        told = (await made.deliveries.page(TENANT, ListQuery(limit=100))).data
        assert len([item for item in told if item.event_type.startswith("session.")]) == 4
        assert len([item for item in told if item.event_type.startswith("deployment_run.")]) == 2
