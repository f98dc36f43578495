from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path

import anyio
import msgspec
import pytest
from tests.at_once import at_once
from tests.service.receiver import Receiver, holds, receiving
from tests.service.schedule_setup import LOOPBACK, START, TENANT, Works, works

from mainspring.capabilities.network.outbound_http import HttpPoster
from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.events import (
    AgentMessage,
    KnownPayload,
    StatusIdle,
    StatusRunning,
    StopReason,
    ThreadCreated,
    ThreadStatusIdle,
)
from mainspring.log.store import SessionRow
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.storage.repository import ListQuery, Notification
from mainspring.service.webhooks.webhook_deliveries import Deliveries, Delivery, DeliveryRetryPolicy
from mainspring.service.webhooks.webhook_endpoints import (
    CreateWebhook,
    UpdateWebhook,
    WebhookWithSecret,
)
from mainspring.service.webhooks.webhook_events import EVENT_TYPES

IDLE = StatusIdle(stop_reason=StopReason(type="end_turn"))
PATIENCE = DeliveryRetryPolicy(attempts=4, disable_after=timedelta(hours=1))


@dataclass
class DeliverySetup:
    works: Works
    receiver: Receiver
    webhook: WebhookWithSecret

    async def deliveries(self) -> list[Delivery]:
        return [*(await self.works.deliveries.page(TENANT, ListQuery(limit=1000))).data]

    async def happens(self, type_: str = "vault.created", id_: str = "vlt_1") -> None:
        await self.works.outbox.notify(Notification(tenant=TENANT, type=type_, id=id_))

    async def pass_and_deliver(self, **span: float) -> None:
        self.works.clock.pass_by(**span)
        await self.works.deliver_due()


@pytest.fixture
async def delivery_setup(tmp_path: Path) -> AsyncGenerator[DeliverySetup]:
    poster = HttpPoster(allowed=[ip_network(LOOPBACK)], allow_http=True)
    async with works(tmp_path, poster=poster, patience=PATIENCE) as made, receiving() as receiver:
        webhook = await made.webhooks.create(
            TENANT, CreateWebhook(url=receiver.url, event_types=EVENT_TYPES)
        )
        yield DeliverySetup(made, receiver, webhook)


async def delivered_events(sending: DeliverySetup) -> list[tuple[str, str]]:
    """Types and subjects of what was received."""
    bodies = [msgspec.json.decode(body)["data"] for _, body in sending.receiver.got]
    return sorted((item["type"], item["id"]) for item in bodies)


async def test_an_event_is_delivered_once_and_signed(delivery_setup: DeliverySetup):
    await delivery_setup.happens()
    with anyio.fail_after(60):
        await delivery_setup.works.deliver_due()
    [(headers, body)] = delivery_setup.receiver.got
    assert holds(delivery_setup.webhook.secret, headers, body)
    event = msgspec.json.decode(body)
    assert headers["webhook-id"] == event["id"]
    assert event["data"] == {
        "type": "vault.created",
        "id": "vlt_1",
        "organization_id": TENANT,
        "workspace_id": TENANT,
    }
    [delivery] = await delivery_setup.deliveries()
    assert delivery.status == "delivered"
    assert delivery.last_attempt
    assert delivery.last_attempt.excerpt == "thanks"
    await delivery_setup.pass_and_deliver(days=1)
    assert len(delivery_setup.receiver.got) == 1


async def test_a_failed_delivery_is_retried_with_growing_pauses_and_then_dead(
    delivery_setup: DeliverySetup,
):
    delivery_setup.receiver.status = 500
    await delivery_setup.happens()
    for _ in range(8):
        await delivery_setup.pass_and_deliver(minutes=5)
    assert len(delivery_setup.receiver.got) == PATIENCE.attempts
    assert len({headers["webhook-id"] for headers, _ in delivery_setup.receiver.got}) == 1
    assert all(holds(delivery_setup.webhook.secret, *item) for item in delivery_setup.receiver.got)
    [delivery] = await delivery_setup.deliveries()
    assert (delivery.status, delivery.attempts) == ("dead", 4)
    delivery_setup.receiver.status = 204
    assert await delivery_setup.works.deliveries.resend_dead(TENANT, delivery_setup.webhook.id) == 1
    await delivery_setup.works.deliver_due()
    [delivery] = await delivery_setup.deliveries()
    assert delivery.status == "delivered"


async def test_resending_dead_deliveries_ends_even_if_they_die_again(delivery_setup: DeliverySetup):
    made, webhook = delivery_setup.works, delivery_setup.webhook

    async def die(job: Job, *, at: datetime | None = None) -> None:
        del at
        await made.webhooks.disable(TENANT, webhook.id, "address")
        await made.deliveries.attempt(TENANT, job.key)

    delivery_setup.receiver.status = 500
    await delivery_setup.happens()
    for _ in range(8):
        await delivery_setup.pass_and_deliver(minutes=5)
    deliveries = Deliveries(
        made.records, made.webhooks, post=HttpPoster(), put=die, clock=made.clock
    )
    with anyio.fail_after(60):
        assert await deliveries.resend_dead(TENANT, webhook.id) == 1
    [delivery] = await delivery_setup.deliveries()
    assert delivery.status == "dead"


def test_retry_pauses_grow_to_about_a_day_with_jitter():
    patience = DeliveryRetryPolicy()
    pauses = [patience.pause("whd_1", n) for n in range(1, patience.attempts)]
    assert all(one < other * 1.6 for one, other in pairwise(pauses))
    assert timedelta(hours=20) < sum(pauses, timedelta()) < timedelta(hours=32)
    assert patience.pause("whd_1", 3) != patience.pause("whd_2", 3)


async def test_a_job_that_runs_too_early_or_twice_sends_nothing(delivery_setup: DeliverySetup):
    delivery_setup.receiver.status = 503
    await delivery_setup.happens()
    [job] = delivery_setup.works.jobs.take("deliver", delivery_setup.works.clock.now)
    await delivery_setup.works.deliveries.deliver(job)
    await delivery_setup.works.deliveries.deliver(job)
    assert len(delivery_setup.receiver.got) == 1


async def test_a_delivery_whose_job_was_lost_is_found_by_the_sweep(delivery_setup: DeliverySetup):
    await delivery_setup.happens()
    delivery_setup.works.jobs.waiting.clear()
    assert await delivery_setup.works.deliveries.sweep() == 1
    await delivery_setup.works.deliver_due()
    assert len(delivery_setup.receiver.got) == 1
    delivery_setup.works.clock.pass_by(days=8)
    await delivery_setup.works.deliveries.sweep()
    assert await delivery_setup.deliveries() == []


async def test_a_redirect_is_not_followed_and_disables_the_endpoint(delivery_setup: DeliverySetup):
    delivery_setup.receiver.status = 302
    delivery_setup.receiver.headers = {"location": f"{delivery_setup.receiver.url}/elsewhere"}
    await delivery_setup.happens()
    await delivery_setup.works.deliver_due()
    assert len(delivery_setup.receiver.got) == 1
    webhook = await delivery_setup.works.webhooks.get(TENANT, delivery_setup.webhook.id)
    assert (webhook.status, webhook.disabled_reason) == ("disabled", "redirect")
    await delivery_setup.happens()
    await delivery_setup.works.deliver_due()
    assert len(delivery_setup.receiver.got) == 1
    with pytest.raises(InvalidInput, match="disabled"):
        await delivery_setup.works.deliveries.resend_dead(TENANT, webhook.id)


async def test_long_failure_disables_the_endpoint_and_a_success_resets_the_count(
    delivery_setup: DeliverySetup,
):
    delivery_setup.receiver.status = 500
    await delivery_setup.happens()
    await delivery_setup.works.deliver_due()
    delivery_setup.receiver.status = 200
    await delivery_setup.pass_and_deliver(minutes=50)
    delivery_setup.receiver.status = 500
    await delivery_setup.happens()
    await delivery_setup.pass_and_deliver(minutes=50)
    assert (
        await delivery_setup.works.webhooks.get(TENANT, delivery_setup.webhook.id)
    ).status == "enabled"
    await delivery_setup.happens()
    await delivery_setup.pass_and_deliver(minutes=61)
    disabled = await delivery_setup.works.webhooks.get(TENANT, delivery_setup.webhook.id)
    assert (disabled.status, disabled.disabled_reason) == ("disabled", "failing")
    back = await delivery_setup.works.webhooks.update(
        TENANT, delivery_setup.webhook.id, UpdateWebhook(status="enabled")
    )
    assert (back.disabled_reason, back.failing_since) == (None, None)


async def test_a_rotated_secret_stays_valid_for_the_grace_period(delivery_setup: DeliverySetup):
    rotated = await delivery_setup.works.webhooks.rotate(
        TENANT, delivery_setup.webhook.id, old_for=timedelta(hours=1)
    )
    assert rotated.secret != delivery_setup.webhook.secret
    await delivery_setup.happens()
    await delivery_setup.works.deliver_due()
    assert holds(delivery_setup.webhook.secret, *delivery_setup.receiver.got[0])
    assert holds(rotated.secret, *delivery_setup.receiver.got[0])
    await delivery_setup.happens()
    await delivery_setup.pass_and_deliver(hours=2)
    assert not holds(delivery_setup.webhook.secret, *delivery_setup.receiver.got[1])
    assert holds(rotated.secret, *delivery_setup.receiver.got[1])


async def test_an_endpoint_gets_only_its_event_types_of_its_tenant(delivery_setup: DeliverySetup):
    await delivery_setup.works.webhooks.update(
        TENANT, delivery_setup.webhook.id, UpdateWebhook(event_types=("vault.deleted",))
    )
    await delivery_setup.happens("vault.created")
    await delivery_setup.happens("vault.deleted")
    await delivery_setup.works.outbox.notify(
        Notification(tenant="rival", type="vault.deleted", id="vlt_2")
    )
    await delivery_setup.works.deliver_due()
    assert await delivered_events(delivery_setup) == [("vault.deleted", "vlt_1")]


async def test_no_secret_is_stored_in_plain_text(delivery_setup: DeliverySetup):
    await delivery_setup.happens()
    plain = delivery_setup.webhook.secret.removeprefix("whsec_").encode()
    record = await delivery_setup.works.records.get("webhook", delivery_setup.webhook.id)
    sealed = await delivery_setup.works.records.content("webhook", delivery_setup.webhook.id)
    assert plain not in record.body
    assert plain not in sealed


async def test_deleting_an_endpoint_deletes_its_deliveries(delivery_setup: DeliverySetup):
    await delivery_setup.happens()
    await delivery_setup.works.webhooks.delete(TENANT, delivery_setup.webhook.id)
    await delivery_setup.works.deliver_due()
    assert delivery_setup.receiver.got == []
    assert await delivery_setup.deliveries() == []
    with pytest.raises(NotFound):
        await delivery_setup.works.webhooks.get(TENANT, delivery_setup.webhook.id)


async def session_with_turns(sending: DeliverySetup) -> SessionRow:
    session = await sending.works.log.create()
    said = AgentMessage(content=(TextBlock("hi"),))
    await append_events(sending, session.id, StatusRunning(), said, IDLE)
    return session


async def append_events(sending: DeliverySetup, session_id: str, *payloads: KnownPayload) -> None:
    writer = await sending.works.log.hold(session_id, owner="w")
    await writer.append(*payloads)
    await writer.release()


async def test_catching_up_repeatedly_notifies_once(delivery_setup: DeliverySetup):
    session = await session_with_turns(delivery_setup)
    news = delivery_setup.works.news
    assert await news.catch_up(TENANT, session.id) == 4
    assert await news.catch_up(TENANT, session.id) == 0
    await delivery_setup.works.deliver_due()
    assert await delivered_events(delivery_setup) == [
        ("session.idled", session.id),
        ("session.running", session.id),
        ("session.status_idled", session.id),
        ("session.status_run_started", session.id),
    ]


async def test_notifications_missed_by_a_dead_worker_are_sent_by_the_next(
    delivery_setup: DeliverySetup,
):
    session = await session_with_turns(delivery_setup)  # and nobody catches up
    waiting = StopReason(type="requires_action", event_ids=("sevt_1",))
    await append_events(
        delivery_setup, session.id, StatusRunning(), StatusIdle(stop_reason=waiting)
    )
    delivery_setup.works.jobs.waiting.clear()
    assert await delivery_setup.works.news.catch_up(TENANT, session.id) == 9
    delivery_setup.works.jobs.waiting.clear()  # killed between the write and the engine
    await delivery_setup.works.deliveries.sweep()
    await delivery_setup.works.deliver_due()
    assert ("session.requires_action", session.id) in await delivered_events(delivery_setup)
    assert len(delivery_setup.receiver.got) == 9


async def test_two_workers_that_catch_up_concurrently_notify_once(delivery_setup: DeliverySetup):
    session = await session_with_turns(delivery_setup)
    await at_once(lambda _: delivery_setup.works.news.catch_up(TENANT, session.id), range(4))
    assert len(await delivery_setup.deliveries()) == 4


async def test_a_fork_notifies_only_of_its_own_events_and_threads_only_of_children(
    delivery_setup: DeliverySetup,
):
    session = await session_with_turns(delivery_setup)
    fork = await delivery_setup.works.log.fork(session.id)
    child = "sthr_child"
    await append_events(
        delivery_setup,
        fork.id,
        ThreadCreated(session_thread_id=fork.thread_id, agent_name="main"),
        ThreadCreated(session_thread_id=child, agent_name="helper"),
        ThreadStatusIdle(
            session_thread_id=child, agent_name="helper", stop_reason=StopReason(type="end_turn")
        ),
    )
    assert await delivery_setup.works.news.catch_up(TENANT, fork.id) == 2
    await delivery_setup.works.deliver_due()
    assert await delivered_events(delivery_setup) == [
        ("session.thread_created", fork.id),
        ("session.thread_idled", fork.id),
    ]
    assert '"session_thread_id":"sthr_child"' in delivery_setup.receiver.got[0][1]


async def test_a_new_endpoint_is_not_notified_of_past_events(delivery_setup: DeliverySetup):
    session = await session_with_turns(delivery_setup)
    delivery_setup.works.clock.now = START + timedelta(days=3650)
    await delivery_setup.works.webhooks.delete(TENANT, delivery_setup.webhook.id)
    await delivery_setup.works.webhooks.create(
        TENANT, CreateWebhook(url=delivery_setup.receiver.url, event_types=EVENT_TYPES)
    )
    assert await delivery_setup.works.news.catch_up(TENANT, session.id) == 0
