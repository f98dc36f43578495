"""`/v1/mainspring/webhooks`, an extension: endpoints and their deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.edges.api.route import ApiCall, Empty, PageQuery, list_query, route
from mainspring.service.storage.pagination import Page
from mainspring.service.webhooks.webhook_deliveries import Deliveries, Delivery, DeliveryStatus
from mainspring.service.webhooks.webhook_endpoints import (
    CreateWebhook,
    UpdateWebhook,
    Webhook,
    Webhooks,
    WebhookWithSecret,
)
from mainspring.service.webhooks.webhook_outbox import Outbox


class ListDeliveries(PageQuery, frozen=True, kw_only=True):
    status: DeliveryStatus | None = None


class RotateSecret(Struct, frozen=True, kw_only=True):
    old_valid_seconds: Annotated[int, Meta(ge=0, le=7 * 86_400)] = 86_400
    """How long deliveries are also signed with the old secret."""


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

    @route(
        "POST /v1/mainspring/webhooks",
        "Create a webhook endpoint; only this response contains its secret",
    )
    async def create(self, call: ApiCall[Empty, CreateWebhook]) -> WebhookWithSecret:
        return await self.webhooks.create(call.tenant, call.body)

    @route("GET /v1/mainspring/webhooks", "List webhook endpoints")
    async def list(self, call: ApiCall[PageQuery, Empty]) -> Page[Webhook]:
        return await self.webhooks.page(call.tenant, list_query(call.query))

    @route("GET /v1/mainspring/webhooks/{webhook_id}", "Get a webhook endpoint")
    async def get(self, call: ApiCall[Empty, Empty]) -> Webhook:
        return await self.webhooks.get(call.tenant, call["webhook_id"])

    @route(
        "POST /v1/mainspring/webhooks/{webhook_id}", "Update, enable or disable a webhook endpoint"
    )
    async def update(self, call: ApiCall[Empty, UpdateWebhook]) -> Webhook:
        return await self.webhooks.update(call.tenant, call["webhook_id"], call.body)

    @route(
        "DELETE /v1/mainspring/webhooks/{webhook_id}",
        "Delete a webhook endpoint and its deliveries",
    )
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedWebhook:
        await self.webhooks.delete(call.tenant, call["webhook_id"])
        return DeletedWebhook(id=call["webhook_id"])

    @route(
        "POST /v1/mainspring/webhooks/{webhook_id}/rotate_secret",
        "Rotate the secret of a webhook endpoint; only this response contains it",
    )
    async def rotate(self, call: ApiCall[Empty, RotateSecret]) -> WebhookWithSecret:
        old_for = timedelta(seconds=call.body.old_valid_seconds)
        return await self.webhooks.rotate(call.tenant, call["webhook_id"], old_for=old_for)

    @route(
        "POST /v1/mainspring/webhooks/{webhook_id}/ping", "Send a test event to a webhook endpoint"
    )
    async def ping(self, call: ApiCall[Empty, Empty]) -> Delivery:
        delivery = await self.outbox.ping(call.tenant, call["webhook_id"])
        return await self.deliveries.attempt(call.tenant, delivery.id)

    @route(
        "GET /v1/mainspring/webhooks/{webhook_id}/deliveries",
        "List the deliveries of a webhook endpoint",
    )
    async def list_deliveries(self, call: ApiCall[ListDeliveries, Empty]) -> Page[Delivery]:
        webhook = await self.webhooks.get(call.tenant, call["webhook_id"])
        listing = list_query(call.query, parent=webhook.id, label=call.query.status)
        return await self.deliveries.page(call.tenant, listing)

    @route(
        "POST /v1/mainspring/webhooks/{webhook_id}/resend_dead",
        "Resend all failed deliveries of a webhook endpoint",
    )
    async def resend_dead(self, call: ApiCall[Empty, Empty]) -> Resent:
        return Resent(resent=await self.deliveries.resend_dead(call.tenant, call["webhook_id"]))

    @route("GET /v1/mainspring/webhook_deliveries/{delivery_id}", "Get a delivery")
    async def get_delivery(self, call: ApiCall[Empty, Empty]) -> Delivery:
        return await self.deliveries.get(call.tenant, call["delivery_id"])

    @route("POST /v1/mainspring/webhook_deliveries/{delivery_id}/resend", "Resend a delivery")
    async def resend(self, call: ApiCall[Empty, Empty]) -> Delivery:
        return await self.deliveries.resend(call.tenant, call["delivery_id"])
