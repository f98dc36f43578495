"""Deliveries of webhooks: sent until somebody takes them, kept when nobody does.

At least once, in no order, each time with the same `webhook-id`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, NotFound, StaleVersion
from mainspring.core.ports import PostResult
from mainspring.log.records import RecordQuery, Records, Remove
from mainspring.service.jobs.dispatcher import Job, PutJob
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import IndexColumns, ListQuery, Repository
from mainspring.service.telemetry.metrics import Metrics
from mainspring.service.webhooks.webhook_endpoints import DELIVERY_KIND, Webhook, Webhooks
from mainspring.service.webhooks.webhook_signing import signed_headers

DELIVER = "deliver"
"""The task of a job."""
_CLOCK_TOLERANCE = timedelta(seconds=1)
_BATCH = 200

DeliveryStatus: TypeAlias = Literal["pending", "delivered", "dead"]


class DeliveryAttempt(Struct, frozen=True, kw_only=True):
    at: datetime
    status: int | None
    """Of the answer; `None`: there was none."""
    error: str | None = None
    excerpt: str = ""
    """How the answer began."""


class Delivery(Struct, frozen=True, kw_only=True):
    id: str
    webhook_id: str
    event_id: str
    event_type: str
    event: Raw
    """As it is sent, to the byte."""
    created_at: datetime
    status: DeliveryStatus = "pending"
    attempts: int = 0
    """Since it was made or sent again."""
    next_attempt_at: datetime | None = None
    last_attempt: DeliveryAttempt | None = None
    forget_at: datetime | None = None
    type: Literal["webhook_delivery"] = "webhook_delivery"


class WebhookPoster(Protocol):
    async def __call__(self, url: str, *, headers: Mapping[str, str], body: bytes) -> PostResult:
        """POST, without following redirects; a failure is told, not raised."""
        ...


class MeteredPoster:
    """A `WebhookPoster` that counts the results of another one."""

    def __init__(self, post: WebhookPoster, metrics: Metrics) -> None:
        self._post = post
        self._attempts = metrics.delivery_attempts

    async def __call__(self, url: str, *, headers: Mapping[str, str], body: bytes) -> PostResult:
        posted = await self._post(url, headers=headers, body=body)
        is_taken = posted.status is not None and 200 <= posted.status < 300
        outcome = "refused" if posted.is_refused else "ok" if is_taken else "failed"
        self._attempts.labels(outcome).inc()
        return posted


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long it is tried: eleven times in a day, unless told otherwise."""

    first_seconds: float = 5.0
    factor: float = 4.0
    longest_seconds: float = 6 * 3600.0
    attempts: int = 11
    disable_after: timedelta = timedelta(days=3)
    """An endpoint of which nothing but failures came for so long is disabled."""
    keep_delivered: timedelta = timedelta(days=7)
    keep_dead: timedelta = timedelta(days=30)

    def pause(self, delivery_id: str, attempts: int) -> timedelta:
        """After so many attempts; some part more or less, so that not all come at once."""
        seconds = min(self.first_seconds * self.factor ** (attempts - 1), self.longest_seconds)
        digest = hashlib.sha256(f"{delivery_id} {attempts}".encode()).digest()
        part = int.from_bytes(digest[:8]) / 2**64
        return timedelta(seconds=seconds * (0.8 + 0.4 * part))


DEFAULT_RETRY_POLICY = RetryPolicy()


def delivery_repository(records: Records, clock: Clock) -> Repository[Delivery]:
    return Repository(records, DELIVERY_KIND, Delivery, columns=_index_columns, clock=clock)


class Deliveries:
    def __init__(
        self,
        records: Records,
        webhooks: Webhooks,
        *,
        post: WebhookPoster,
        put: PutJob,
        retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
        clock: Clock = clocks.now,
    ) -> None:
        self._records = records
        self._webhooks = webhooks
        self._post = post
        self._put = put
        self._retry_policy = retry_policy
        self._clock = clock
        self._repository = delivery_repository(records, clock)

    async def get(self, tenant: str, delivery_id: str) -> Delivery:
        return await self._repository.get(tenant, delivery_id)

    async def page(self, tenant: str, list_query: ListQuery) -> Page[Delivery]:
        return await self._repository.page(tenant, list_query)

    async def deliver(self, job: Job) -> None:
        """What a worker does for a job `deliver`: one attempt."""
        try:
            delivery = await self._repository.get(job.tenant, job.key)
        except NotFound:
            return
        if delivery.status != "pending" or delivery.next_attempt_at is None:
            return
        if delivery.next_attempt_at > self._clock() + _CLOCK_TOLERANCE:
            await self._put(job, at=delivery.next_attempt_at)
            return
        await self.attempt(job.tenant, delivery.id)

    async def attempt(self, tenant: str, delivery_id: str) -> Delivery:
        """Try it now, whenever it was to be tried."""
        delivery = await self._repository.get(tenant, delivery_id)
        try:
            webhook = await self._webhooks.get(tenant, delivery.webhook_id)
        except NotFound:
            return await self._settle(tenant, delivery, PostResult(error="the endpoint is gone"))
        if webhook.status == "disabled":
            return await self._settle(
                tenant, delivery, PostResult(error="the endpoint is disabled")
            )
        posted = await self._send(tenant, delivery, webhook)
        return await self._decide(tenant, delivery, webhook, posted)

    async def resend(self, tenant: str, delivery_id: str) -> Delivery:
        """Send it again, as if for the first time, whatever came of it before."""
        now = self._clock()
        sent = await self._repository.update(
            tenant,
            delivery_id,
            lambda current: replace(
                current, status="pending", attempts=0, next_attempt_at=now, forget_at=None
            ),
        )
        await self._put(Job(task=DELIVER, key=sent.id, tenant=tenant))
        return sent

    async def resend_dead(self, tenant: str, webhook_id: str) -> int:
        """All that an endpoint did not take; how many.

        Raises: InvalidInput: it is disabled, so they would die again.
        """
        if (await self._webhooks.get(tenant, webhook_id)).status == "disabled":
            raise InvalidInput(f"{webhook_id} is disabled; enable it first")
        sent = 0
        wanted = RecordQuery(
            kind=DELIVERY_KIND,
            tenant=tenant,
            parent=webhook_id,
            label="dead",
            order="asc",
            limit=_BATCH,
        )
        while found := await self._records.list(wanted):
            for record in found:
                with suppress(NotFound):  # forgotten just now
                    await self.resend(tenant, record.id)
                    sent += 1
            # onwards: what has died again meanwhile is not sent for ever
            wanted = dataclasses.replace(wanted, after=found[-1])
        return sent

    async def sweep(self) -> int:
        """Have done what is due and has no job, as one that was lost; forget what is old. How
        many were due. Call it now and then."""
        due = await self._repository.due(self._clock(), limit=_BATCH)
        for record, delivery in due:
            if delivery.status == "pending":
                await self._put(Job(task=DELIVER, key=delivery.id, tenant=record.tenant))
                continue
            try:
                await self._records.write(Remove(record_row=record))
            except (StaleVersion, NotFound):  # sent again, or gone: in any case not ours to forget
                continue
        return len(due)

    async def _send(self, tenant: str, delivery: Delivery, webhook: Webhook) -> PostResult:
        body = bytes(delivery.event)
        secrets = await self._webhooks.secrets(tenant, webhook.id)
        headers = {
            "content-type": "application/json",
            "user-agent": "Mainspring-Webhooks",
            **signed_headers(delivery.event_id, body, secrets=secrets, now=self._clock()),
        }
        return await self._post(webhook.url, headers=headers, body=body)

    async def _decide(
        self, tenant: str, delivery: Delivery, webhook: Webhook, post_result: PostResult
    ) -> Delivery:
        if post_result.status is not None and 200 <= post_result.status < 300:
            await self._webhooks.worked(tenant, webhook)
            return await self._settle(tenant, delivery, post_result, status="delivered")
        if post_result.is_refused:
            await self._webhooks.disable(tenant, webhook.id, "address")
            return await self._settle(tenant, delivery, post_result)
        if post_result.status is not None and 300 <= post_result.status < 400:
            await self._webhooks.disable(tenant, webhook.id, "redirect")
            return await self._settle(tenant, delivery, post_result)
        patience = self._retry_policy
        after = await self._webhooks.failed(tenant, webhook, disable_after=patience.disable_after)
        if after.status == "disabled" or delivery.attempts + 1 >= patience.attempts:
            return await self._settle(tenant, delivery, post_result)
        return await self._settle(tenant, delivery, post_result, status="pending")

    async def _settle(
        self,
        tenant: str,
        delivery: Delivery,
        post_result: PostResult,
        *,
        status: DeliveryStatus = "dead",
    ) -> Delivery:
        now, patience = self._clock(), self._retry_policy
        attempts = delivery.attempts + 1
        again = now + patience.pause(delivery.id, attempts) if status == "pending" else None
        keep = patience.keep_delivered if status == "delivered" else patience.keep_dead
        settled = await self._repository.update(
            tenant,
            delivery.id,
            lambda current: replace(
                current,
                status=status,
                attempts=attempts,
                next_attempt_at=again,
                forget_at=None if status == "pending" else now + keep,
                last_attempt=DeliveryAttempt(
                    at=now,
                    status=post_result.status,
                    error=post_result.error,
                    excerpt=post_result.excerpt,
                ),
            ),
        )
        if again is not None:
            await self._put(Job(task=DELIVER, key=delivery.id, tenant=tenant), at=again)
        return settled


def _index_columns(delivery: Delivery) -> IndexColumns:
    return IndexColumns(
        parent=delivery.webhook_id,
        label=delivery.status,
        due=delivery.next_attempt_at or delivery.forget_at,
    )
