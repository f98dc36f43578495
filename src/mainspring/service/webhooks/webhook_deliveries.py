"""Deliveries of webhooks: retried until an endpoint accepts them, kept as dead if none does.

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
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.ports import PostResult
from mainspring.log.records import RecordQuery, Records
from mainspring.service.jobs.dispatcher import Job, PutJob
from mainspring.service.storage.metadata import copy_fields
from mainspring.service.storage.repository import IndexColumns, Repository
from mainspring.service.telemetry.metrics import Metrics
from mainspring.service.webhooks.webhook_endpoints import DELIVERY_KIND, Webhook, Webhooks
from mainspring.service.webhooks.webhook_signing import signed_headers

DELIVER = "deliver"
"""The task of its jobs."""
_CLOCK_TOLERANCE = timedelta(seconds=1)  # between machines
_BATCH = 200  # deliveries read at once

DeliveryStatus: TypeAlias = Literal["pending", "delivered", "dead"]


class DeliveryAttempt(Struct, frozen=True, kw_only=True):
    at: datetime
    status: int | None
    """The HTTP status; `null`: there was no response."""
    error: str | None = None
    excerpt: str = ""
    """The start of the response."""


class Delivery(Struct, frozen=True, kw_only=True):
    id: str
    webhook_id: str
    event_id: str
    event_type: str
    event: Raw
    """The event, as it is sent."""
    created_at: datetime
    status: DeliveryStatus = "pending"
    attempts: int = 0
    """Since it was created or last resent."""
    next_attempt_at: datetime | None = None
    last_attempt: DeliveryAttempt | None = None
    forget_at: datetime | None = None
    type: Literal["webhook_delivery"] = "webhook_delivery"


class WebhookPoster(Protocol):
    async def __call__(self, url: str, *, headers: Mapping[str, str], body: bytes) -> PostResult:
        """POST without following redirects; a failure is returned, not raised."""
        ...


class MeteredPoster:
    """A `WebhookPoster` that counts the results of another one."""

    def __init__(self, post: WebhookPoster, metrics: Metrics) -> None:
        self._post = post
        self._attempts = metrics.delivery_attempts

    async def __call__(self, url: str, *, headers: Mapping[str, str], body: bytes) -> PostResult:
        result = await self._post(url, headers=headers, body=body)
        outcome = "refused" if result.is_refused else "ok" if result.is_accepted else "failed"
        self._attempts.labels(outcome).inc()
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRetryPolicy:
    """When failed deliveries are retried; by default eleven attempts within a day."""

    first_seconds: float = 5.0
    factor: float = 4.0
    longest_seconds: float = 6 * 3600.0
    attempts: int = 11
    disable_after: timedelta = timedelta(days=3)
    """An endpoint that has only failed for this long is disabled."""
    keep_delivered: timedelta = timedelta(days=7)
    keep_dead: timedelta = timedelta(days=30)

    def pause(self, delivery_id: str, attempts: int) -> timedelta:
        """The pause after this many attempts; with jitter, so that not all retry at once."""
        seconds = min(self.first_seconds * self.factor ** (attempts - 1), self.longest_seconds)
        digest = hashlib.sha256(f"{delivery_id} {attempts}".encode()).digest()
        part = int.from_bytes(digest[:8]) / 2**64
        return timedelta(seconds=seconds * (0.8 + 0.4 * part))


DEFAULT_RETRY_POLICY = DeliveryRetryPolicy()


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
        retry: DeliveryRetryPolicy = DEFAULT_RETRY_POLICY,
        clock: Clock = clocks.now,
    ) -> None:
        self._records = records
        self._webhooks = webhooks
        self._post = post
        self._put = put
        self._retry = retry
        self._clock = clock
        self._repository = delivery_repository(records, clock)
        self.get = self._repository.get
        self.page = self._repository.page

    async def deliver(self, job: Job) -> None:
        """Handle a job `deliver`: one attempt."""
        delivery = await self._repository.find(job.tenant, job.key)
        if delivery is None or delivery.status != "pending" or delivery.next_attempt_at is None:
            return
        if delivery.next_attempt_at > self._clock() + _CLOCK_TOLERANCE:
            await self._put(job, at=delivery.next_attempt_at)
            return
        await self.attempt(job.tenant, delivery.id)

    async def attempt(self, tenant: str, delivery_id: str) -> Delivery:
        """Send it now, regardless of when it is due."""
        delivery = await self._repository.get(tenant, delivery_id)
        try:
            webhook = await self._webhooks.get(tenant, delivery.webhook_id)
        except NotFound:
            return await self._settle(
                tenant, delivery, PostResult(error="the endpoint no longer exists")
            )
        if webhook.status == "disabled":
            disabled = PostResult(error="the endpoint is disabled")
            return await self._settle(tenant, delivery, disabled)
        result = await self._send(tenant, delivery, webhook)
        status = await self._next_status(tenant, delivery, webhook, result)
        return await self._settle(tenant, delivery, result, status=status)

    async def resend(self, tenant: str, delivery_id: str) -> Delivery:
        """Send it again as if for the first time, whatever its status."""
        now = self._clock()
        delivery = await self._repository.update(
            tenant,
            delivery_id,
            lambda current: replace(
                current, status="pending", attempts=0, next_attempt_at=now, forget_at=None
            ),
        )
        await self._put(Job(task=DELIVER, key=delivery.id, tenant=tenant))
        return delivery

    async def resend_dead(self, tenant: str, webhook_id: str) -> int:
        """Resend all dead deliveries of an endpoint; returns how many.

        Raises: InvalidInput: it is disabled, so they would fail again.
        """
        if (await self._webhooks.get(tenant, webhook_id)).status == "disabled":
            raise InvalidInput(f"{webhook_id} is disabled; enable it first")
        count = 0
        query = RecordQuery(
            kind=DELIVERY_KIND,
            tenant=tenant,
            parent=webhook_id,
            label="dead",
            order="asc",
            limit=_BATCH,
        )
        while rows := await self._records.list(query):
            for row in rows:
                with suppress(NotFound):  # removed just now
                    await self.resend(tenant, row.id)
                    count += 1
            # only forward, so that deliveries that failed again meanwhile are not resent forever
            query = dataclasses.replace(query, after=rows[-1])
        return count

    async def sweep(self) -> int:
        """Enqueue what is due, in case its job was lost, and remove old deliveries; returns how
        many were due. Call it periodically."""
        due = await self._repository.due(self._clock(), limit=_BATCH)
        for row, delivery in due:
            if delivery.status == "pending":
                await self._put(Job(task=DELIVER, key=delivery.id, tenant=row.tenant))
            else:
                await self._repository.remove_row(row)
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

    async def _next_status(
        self, tenant: str, delivery: Delivery, webhook: Webhook, result: PostResult
    ) -> DeliveryStatus:
        if result.is_accepted:
            await self._webhooks.worked(tenant, webhook)
            return "delivered"
        is_redirect = result.status is not None and 300 <= result.status < 400
        if result.is_refused or is_redirect:
            reason = "address" if result.is_refused else "redirect"
            await self._webhooks.disable(tenant, webhook.id, reason)
            return "dead"
        after = await self._webhooks.failed(
            tenant, webhook, disable_after=self._retry.disable_after
        )
        is_over = after.status == "disabled" or delivery.attempts + 1 >= self._retry.attempts
        return "dead" if is_over else "pending"

    async def _settle(
        self,
        tenant: str,
        delivery: Delivery,
        result: PostResult,
        *,
        status: DeliveryStatus = "dead",
    ) -> Delivery:
        now, retry = self._clock(), self._retry
        attempts = delivery.attempts + 1
        retry_at = now + retry.pause(delivery.id, attempts) if status == "pending" else None
        keep = retry.keep_delivered if status == "delivered" else retry.keep_dead
        settled = await self._repository.update(
            tenant,
            delivery.id,
            lambda current: replace(
                current,
                status=status,
                attempts=attempts,
                next_attempt_at=retry_at,
                forget_at=None if status == "pending" else now + keep,
                last_attempt=copy_fields(DeliveryAttempt, result, at=now),
            ),
        )
        if retry_at is not None:
            await self._put(Job(task=DELIVER, key=delivery.id, tenant=tenant), at=retry_at)
        return settled


def _index_columns(delivery: Delivery) -> IndexColumns:
    return IndexColumns(
        parent=delivery.webhook_id,
        label=delivery.status,
        due=delivery.next_attempt_at or delivery.forget_at,
    )
