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
from mainspring.service.webhooks.webhook_deliveries import Deliveries, Delivery, RetryPolicy
from mainspring.service.webhooks.webhook_endpoints import (
    CreateWebhook,
    UpdateWebhook,
    WebhookWithSecret,
)
from mainspring.service.webhooks.webhook_events import EVENT_TYPES

IDLE = StatusIdle(stop_reason=StopReason(type="end_turn"))
PATIENCE = RetryPolicy(attempts=4, disable_after=timedelta(hours=1))


@dataclass
class Sending:
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
async def sending(tmp_path: Path) -> AsyncGenerator[Sending]:
    poster = HttpPoster(allowed=[ip_network(LOOPBACK)], allow_http=True)
    async with works(tmp_path, poster=poster, patience=PATIENCE) as made, receiving() as receiver:
        webhook = await made.webhooks.create(
            TENANT, CreateWebhook(url=receiver.url, event_types=EVENT_TYPES)
        )
        yield Sending(made, receiver, webhook)


async def told(sending: Sending) -> list[tuple[str, str]]:
    """Types and subjects of what was received."""
    bodies = [msgspec.json.decode(body)["data"] for _, body in sending.receiver.got]
    return sorted((item["type"], item["id"]) for item in bodies)


async def test_what_happens_is_told_once_and_signed(sending: Sending):
    await sending.happens()
    with anyio.fail_after(60):
        await sending.works.deliver_due()
    [(headers, body)] = sending.receiver.got
    assert holds(sending.webhook.secret, headers, body)
    event = msgspec.json.decode(body)
    assert headers["webhook-id"] == event["id"]
    assert event["data"] == {
        "type": "vault.created",
        "id": "vlt_1",
        "organization_id": TENANT,
        "workspace_id": TENANT,
    }
    [delivery] = await sending.deliveries()
    assert delivery.status == "delivered"
    assert delivery.last_attempt
    assert delivery.last_attempt.excerpt == "thanks"
    await sending.pass_and_deliver(days=1)
    assert len(sending.receiver.got) == 1


async def test_failure_is_tried_again_ever_later_with_same_id_and_then_kept_dead(sending: Sending):
    sending.receiver.status = 500
    await sending.happens()
    for _ in range(8):
        await sending.pass_and_deliver(minutes=5)
    assert len(sending.receiver.got) == PATIENCE.attempts
    assert len({headers["webhook-id"] for headers, _ in sending.receiver.got}) == 1
    assert all(holds(sending.webhook.secret, *item) for item in sending.receiver.got)
    [delivery] = await sending.deliveries()
    assert (delivery.status, delivery.attempts) == ("dead", 4)
    sending.receiver.status = 204
    assert await sending.works.deliveries.resend_dead(TENANT, sending.webhook.id) == 1
    await sending.works.deliver_due()
    [delivery] = await sending.deliveries()
    assert delivery.status == "delivered"


async def test_sending_again_ends_also_if_all_of_it_dies_at_once(sending: Sending):
    made, webhook = sending.works, sending.webhook

    async def die(job: Job, *, at: datetime | None = None) -> None:
        del at
        await made.webhooks.disable(TENANT, webhook.id, "address")
        await made.deliveries.attempt(TENANT, job.key)

    sending.receiver.status = 500
    await sending.happens()
    for _ in range(8):
        await sending.pass_and_deliver(minutes=5)
    deliveries = Deliveries(
        made.records, made.webhooks, post=HttpPoster(), put=die, clock=made.clock
    )
    with anyio.fail_after(60):
        assert await deliveries.resend_dead(TENANT, webhook.id) == 1
    [delivery] = await sending.deliveries()
    assert delivery.status == "dead"


def test_pauses_grow_to_a_day_in_all_and_differ_a_little():
    patience = RetryPolicy()
    pauses = [patience.pause("whd_1", n) for n in range(1, patience.attempts)]
    assert all(one < other * 1.6 for one, other in pairwise(pauses))
    assert timedelta(hours=20) < sum(pauses, timedelta()) < timedelta(hours=32)
    assert patience.pause("whd_1", 3) != patience.pause("whd_2", 3)


async def test_a_job_that_comes_too_early_or_twice_sends_nothing(sending: Sending):
    sending.receiver.status = 503
    await sending.happens()
    [job] = sending.works.jobs.take("deliver", sending.works.clock.now)
    await sending.works.deliveries.deliver(job)
    await sending.works.deliveries.deliver(job)
    assert len(sending.receiver.got) == 1


async def test_a_delivery_whose_job_was_lost_is_found_by_looking(sending: Sending):
    await sending.happens()
    sending.works.jobs.waiting.clear()
    assert await sending.works.deliveries.sweep() == 1
    await sending.works.deliver_due()
    assert len(sending.receiver.got) == 1
    sending.works.clock.pass_by(days=8)
    await sending.works.deliveries.sweep()
    assert await sending.deliveries() == []


async def test_a_redirect_is_not_followed_and_disables_the_endpoint(sending: Sending):
    sending.receiver.status = 302
    sending.receiver.headers = {"location": f"{sending.receiver.url}/elsewhere"}
    await sending.happens()
    await sending.works.deliver_due()
    assert len(sending.receiver.got) == 1
    webhook = await sending.works.webhooks.get(TENANT, sending.webhook.id)
    assert (webhook.status, webhook.disabled_reason) == ("disabled", "redirect")
    await sending.happens()
    await sending.works.deliver_due()
    assert len(sending.receiver.got) == 1
    with pytest.raises(InvalidInput, match="disabled"):
        await sending.works.deliveries.resend_dead(TENANT, webhook.id)


async def test_long_failure_disables_and_one_success_starts_the_count_anew(sending: Sending):
    sending.receiver.status = 500
    await sending.happens()
    await sending.works.deliver_due()
    sending.receiver.status = 200
    await sending.pass_and_deliver(minutes=50)
    sending.receiver.status = 500
    await sending.happens()
    await sending.pass_and_deliver(minutes=50)
    assert (await sending.works.webhooks.get(TENANT, sending.webhook.id)).status == "enabled"
    await sending.happens()
    await sending.pass_and_deliver(minutes=61)
    disabled = await sending.works.webhooks.get(TENANT, sending.webhook.id)
    assert (disabled.status, disabled.disabled_reason) == ("disabled", "failing")
    back = await sending.works.webhooks.update(
        TENANT, sending.webhook.id, UpdateWebhook(status="enabled")
    )
    assert (back.disabled_reason, back.failing_since) == (None, None)


async def test_a_rotated_secret_leaves_the_old_one_valid_for_a_while(sending: Sending):
    rotated = await sending.works.webhooks.rotate(
        TENANT, sending.webhook.id, old_for=timedelta(hours=1)
    )
    assert rotated.secret != sending.webhook.secret
    await sending.happens()
    await sending.works.deliver_due()
    assert holds(sending.webhook.secret, *sending.receiver.got[0])
    assert holds(rotated.secret, *sending.receiver.got[0])
    await sending.happens()
    await sending.pass_and_deliver(hours=2)
    assert not holds(sending.webhook.secret, *sending.receiver.got[1])
    assert holds(rotated.secret, *sending.receiver.got[1])


async def test_an_endpoint_hears_only_what_it_asked_for_and_only_from_then_on(sending: Sending):
    await sending.works.webhooks.update(
        TENANT, sending.webhook.id, UpdateWebhook(event_types=("vault.deleted",))
    )
    await sending.happens("vault.created")
    await sending.happens("vault.deleted")
    await sending.works.outbox.notify(
        Notification(tenant="rival", type="vault.deleted", id="vlt_2")
    )
    await sending.works.deliver_due()
    assert await told(sending) == [("vault.deleted", "vlt_1")]


async def test_no_secret_is_in_a_record(sending: Sending):
    await sending.happens()
    plain = sending.webhook.secret.removeprefix("whsec_").encode()
    record = await sending.works.records.get("webhook", sending.webhook.id)
    sealed = await sending.works.records.content("webhook", sending.webhook.id)
    assert plain not in record.body
    assert plain not in sealed


async def test_an_endpoint_that_is_deleted_takes_its_deliveries_along(sending: Sending):
    await sending.happens()
    await sending.works.webhooks.delete(TENANT, sending.webhook.id)
    await sending.works.deliver_due()
    assert sending.receiver.got == []
    assert await sending.deliveries() == []
    with pytest.raises(NotFound):
        await sending.works.webhooks.get(TENANT, sending.webhook.id)


async def session_with_turns(sending: Sending) -> SessionRow:
    session = await sending.works.log.create()
    said = AgentMessage(content=(TextBlock("hi"),))
    await appended(sending, session.id, StatusRunning(), said, IDLE)
    return session


async def appended(sending: Sending, session_id: str, *payloads: KnownPayload) -> None:
    writer = await sending.works.log.hold(session_id, owner="w")
    await writer.append(*payloads)
    await writer.release()


async def test_a_sessions_log_is_told_from_once_however_often_it_is_looked_at(sending: Sending):
    session = await session_with_turns(sending)
    news = sending.works.news
    assert await news.catch_up(TENANT, session.id) == 4
    assert await news.catch_up(TENANT, session.id) == 0
    await sending.works.deliver_due()
    assert await told(sending) == [
        ("session.idled", session.id),
        ("session.running", session.id),
        ("session.status_idled", session.id),
        ("session.status_run_started", session.id),
    ]


async def test_what_a_worker_that_died_left_untold_the_next_one_tells(sending: Sending):
    session = await session_with_turns(sending)  # and nobody catches up
    waiting = StopReason(type="requires_action", event_ids=("sevt_1",))
    await appended(sending, session.id, StatusRunning(), StatusIdle(stop_reason=waiting))
    sending.works.jobs.waiting.clear()
    assert await sending.works.news.catch_up(TENANT, session.id) == 9
    sending.works.jobs.waiting.clear()  # killed between the write and the engine
    await sending.works.deliveries.sweep()
    await sending.works.deliver_due()
    assert ("session.requires_action", session.id) in await told(sending)
    assert len(sending.receiver.got) == 9


async def test_two_workers_that_catch_up_at_once_tell_once(sending: Sending):
    session = await session_with_turns(sending)
    await at_once(lambda _: sending.works.news.catch_up(TENANT, session.id), range(4))
    assert len(await sending.deliveries()) == 4


async def test_a_fork_tells_only_of_its_own_and_threads_only_of_children(sending: Sending):
    session = await session_with_turns(sending)
    fork = await sending.works.log.fork(session.id)
    child = "sthr_child"
    await appended(
        sending,
        fork.id,
        ThreadCreated(session_thread_id=fork.thread_id, agent_name="main"),
        ThreadCreated(session_thread_id=child, agent_name="helper"),
        ThreadStatusIdle(
            session_thread_id=child, agent_name="helper", stop_reason=StopReason(type="end_turn")
        ),
    )
    assert await sending.works.news.catch_up(TENANT, fork.id) == 2
    await sending.works.deliver_due()
    assert await told(sending) == [
        ("session.thread_created", fork.id),
        ("session.thread_idled", fork.id),
    ]
    assert '"session_thread_id":"sthr_child"' in sending.receiver.got[0][1]


async def test_an_endpoint_made_later_does_not_hear_of_the_past(sending: Sending):
    session = await session_with_turns(sending)
    sending.works.clock.now = START + timedelta(days=3650)
    await sending.works.webhooks.delete(TENANT, sending.webhook.id)
    await sending.works.webhooks.create(
        TENANT, CreateWebhook(url=sending.receiver.url, event_types=EVENT_TYPES)
    )
    assert await sending.works.news.catch_up(TENANT, session.id) == 0
