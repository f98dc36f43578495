"""Schedules and webhooks on PostgreSQL, with several workers at once."""

import anyio
from tests.service.timed import TENANT, assembled, furnish

from mainspring.core.content import TextBlock
from mainspring.core.events import StatusIdle, StatusRunning, StopReason
from mainspring.log.postgres import open_postgres
from mainspring.log.session_log import SessionLog
from mainspring.service.calendar.model import CreateDeployment, ScheduleAsked
from mainspring.service.calendar.runs import RunListing
from mainspring.service.calendar.schedules import Policy
from mainspring.service.keeping.drawer import Listing
from mainspring.service.mail.deliveries import Patience
from mainspring.service.mail.events import EVENT_TYPES
from mainspring.service.mail.webhooks import CreateWebhook
from mainspring.service.sessions.sending_params import SendMessage
from mainspring.service.work.dispatch import Job
from mainspring.wiring.posting import HttpPoster


async def test_workers_that_do_the_same_job_at_once_start_one_session_and_tell_once(
    postgres_url: str,
):
    async with open_postgres(postgres_url) as store:
        log = SessionLog(store)
        made = assembled(store.records, log, poster=HttpPoster(), patience=Patience())
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
                schedule=ScheduleAsked(
                    expression="0 * * * *", timezone="UTC", policy=Policy(jitter_seconds=0)
                ),
            ),
        )
        made.clock.pass_by(minutes=1)
        job = Job(task="fire", key=deployment.id, tenant=TENANT)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(made.firing.fire, job)
        assert len((await made.runs.page(TENANT, RunListing())).data) == 1
        assert len(made.sessions.orders) == 1

        session = await log.create()
        writer = await log.hold(session.id, owner="w")
        await writer.append(StatusRunning(), StatusIdle(stop_reason=StopReason(type="end_turn")))
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(made.news.catch_up, TENANT, session.id)
        told = (await made.deliveries.page(TENANT, Listing(limit=100))).data
        assert len([each for each in told if each.event_type.startswith("session.")]) == 4
        runs = [each for each in told if each.event_type.startswith("deployment_run.")]
        assert len(runs) == 2
