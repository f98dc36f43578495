"""`/v1/mainspring/webhooks`: endpoints and what was sent to them. Ours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.keeping.drawer import Listing
from mainspring.service.keeping.page import Limit, Page
from mainspring.service.mail.deliveries import Deliveries, Delivery, Status
from mainspring.service.mail.outbox import Outbox
from mainspring.service.mail.webhooks import (
    CreateWebhook,
    UpdateWebhook,
    Webhook,
    Webhooks,
    WebhookWithSecret,
)


class ListWebhooks(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None


class ListDeliveries(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None
    status: Status | None = None


class RotateSecret(Struct, frozen=True, kw_only=True):
    old_valid_seconds: Annotated[int, Meta(ge=0, le=7 * 86_400)] = 86_400
    """How long calls are signed with the old secret too."""


class DeletedWebhook(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["webhook_endpoint_deleted"] = "webhook_endpoint_deleted"


class Resent(Struct, frozen=True, kw_only=True):
    resent: int


@dataclass(frozen=True, slots=True)
class WebhookRoutes:
    webhooks: Webhooks
    outbox: Outbox
    deliveries: Deliveries

    def routes(self) -> tuple[Route, ...]:
        return (*self._endpoints(), *self._sendings())

    def _endpoints(self) -> tuple[Route, ...]:
        one = "/v1/mainspring/webhooks/{webhook_id}"
        return (
            Route(
                method="POST",
                path="/v1/mainspring/webhooks",
                handle=self.create,
                summary="Make a webhook endpoint; the answer alone has its secret",
                body=CreateWebhook,
                answer=WebhookWithSecret,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path="/v1/mainspring/webhooks",
                handle=self.list,
                summary="List webhook endpoints",
                query=ListWebhooks,
                answer=Page[Webhook],
                is_extension=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Look at a webhook endpoint",
                answer=Webhook,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Change, enable or disable a webhook endpoint",
                body=UpdateWebhook,
                answer=Webhook,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="DELETE",
                path=one,
                handle=self.delete,
                summary="Delete a webhook endpoint and its deliveries",
                answer=DeletedWebhook,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{one}/rotate_secret",
                handle=self.rotate,
                summary="Give a webhook endpoint a new secret; the answer alone has it",
                body=RotateSecret,
                answer=WebhookWithSecret,
                role="operator",
                is_extension=True,
            ),
        )

    def _sendings(self) -> tuple[Route, ...]:
        one = "/v1/mainspring/webhooks/{webhook_id}"
        delivery = "/v1/mainspring/webhook_deliveries/{delivery_id}"
        return (
            Route(
                method="POST",
                path=f"{one}/ping",
                handle=self.ping,
                summary="Try a webhook endpoint with an event that means nothing",
                answer=Delivery,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{one}/deliveries",
                handle=self.list_deliveries,
                summary="List what was sent to a webhook endpoint, or is to be",
                query=ListDeliveries,
                answer=Page[Delivery],
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{one}/resend_dead",
                handle=self.resend_dead,
                summary="Send again all that a webhook endpoint did not take",
                answer=Resent,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=delivery,
                handle=self.get_delivery,
                summary="Look at a delivery",
                answer=Delivery,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{delivery}/resend",
                handle=self.resend,
                summary="Send a delivery again",
                answer=Delivery,
                role="operator",
                is_extension=True,
            ),
        )

    async def create(self, call: Call[Nothing, CreateWebhook]) -> WebhookWithSecret:
        return await self.webhooks.create(call.tenant, call.body)

    async def list(self, call: Call[ListWebhooks, Nothing]) -> Page[Webhook]:
        listing = Listing(limit=call.query.limit, page=call.query.page)
        return await self.webhooks.page(call.tenant, listing)

    async def get(self, call: Call[Nothing, Nothing]) -> Webhook:
        return await self.webhooks.get(call.tenant, call["webhook_id"])

    async def update(self, call: Call[Nothing, UpdateWebhook]) -> Webhook:
        return await self.webhooks.update(call.tenant, call["webhook_id"], call.body)

    async def delete(self, call: Call[Nothing, Nothing]) -> DeletedWebhook:
        await self.webhooks.delete(call.tenant, call["webhook_id"])
        return DeletedWebhook(id=call["webhook_id"])

    async def rotate(self, call: Call[Nothing, RotateSecret]) -> WebhookWithSecret:
        old_for = timedelta(seconds=call.body.old_valid_seconds)
        return await self.webhooks.rotate(call.tenant, call["webhook_id"], old_for=old_for)

    async def ping(self, call: Call[Nothing, Nothing]) -> Delivery:
        made = await self.outbox.ping(call.tenant, call["webhook_id"])
        return await self.deliveries.attempt(call.tenant, made.id)

    async def list_deliveries(self, call: Call[ListDeliveries, Nothing]) -> Page[Delivery]:
        webhook = await self.webhooks.get(call.tenant, call["webhook_id"])
        query = call.query
        return await self.deliveries.page(
            call.tenant,
            Listing(limit=query.limit, page=query.page, parent=webhook.id, label=query.status),
        )

    async def resend_dead(self, call: Call[Nothing, Nothing]) -> Resent:
        return Resent(resent=await self.deliveries.resend_dead(call.tenant, call["webhook_id"]))

    async def get_delivery(self, call: Call[Nothing, Nothing]) -> Delivery:
        return await self.deliveries.get(call.tenant, call["delivery_id"])

    async def resend(self, call: Call[Nothing, Nothing]) -> Delivery:
        return await self.deliveries.resend(call.tenant, call["delivery_id"])
