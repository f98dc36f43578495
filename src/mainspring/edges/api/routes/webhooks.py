"""`/v1/mainspring/webhooks`: endpoints and what was sent to them. Ours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.edges.api.resource import PageQuery, Resource, forward
from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery
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
        return (*self._endpoint_routes(), *self._delivery_routes())

    def _endpoint_routes(self) -> tuple[Route, ...]:
        one = "/v1/mainspring/webhooks/{webhook_id}"
        return (
            *Resource(
                path=one,
                service=self.webhooks,
                item=Webhook,
                create=CreateWebhook,
                created=WebhookWithSecret,
                update=UpdateWebhook,
                deleted=DeletedWebhook,
                is_extension=True,
                summaries={
                    "create": "Create a webhook endpoint; only this response contains its secret",
                    "list": "List webhook endpoints",
                    "get": "Get a webhook endpoint",
                    "update": "Update, enable or disable a webhook endpoint",
                    "delete": "Delete a webhook endpoint and its deliveries",
                },
            ).routes(),
            Route(
                method="POST",
                path=f"{one}/rotate_secret",
                handle=self.rotate,
                summary="Rotate the secret of a webhook endpoint; only this response contains it",
                body=RotateSecret,
                response_type=WebhookWithSecret,
                role="operator",
                is_extension=True,
            ),
        )

    def _delivery_routes(self) -> tuple[Route, ...]:
        one = "/v1/mainspring/webhooks/{webhook_id}"
        delivery = "/v1/mainspring/webhook_deliveries/{delivery_id}"
        resend = f"{delivery}/resend"
        return (
            Route(
                method="POST",
                path=f"{one}/ping",
                handle=self.ping,
                summary="Send a test event to a webhook endpoint",
                response_type=Delivery,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{one}/deliveries",
                handle=self.list_deliveries,
                summary="List the deliveries of a webhook endpoint",
                query=ListDeliveries,
                response_type=Page[Delivery],
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{one}/resend_dead",
                handle=self.resend_dead,
                summary="Resend all failed deliveries of a webhook endpoint",
                response_type=Resent,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=delivery,
                handle=forward(self.deliveries.get, delivery),
                summary="Get a delivery",
                response_type=Delivery,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=resend,
                handle=forward(self.deliveries.resend, resend),
                summary="Resend a delivery",
                response_type=Delivery,
                role="operator",
                is_extension=True,
            ),
        )

    async def rotate(self, call: ApiCall[Empty, RotateSecret]) -> WebhookWithSecret:
        old_for = timedelta(seconds=call.body.old_valid_seconds)
        return await self.webhooks.rotate(call.tenant, call["webhook_id"], old_for=old_for)

    async def ping(self, call: ApiCall[Empty, Empty]) -> Delivery:
        made = await self.outbox.ping(call.tenant, call["webhook_id"])
        return await self.deliveries.attempt(call.tenant, made.id)

    async def list_deliveries(self, call: ApiCall[ListDeliveries, Empty]) -> Page[Delivery]:
        webhook = await self.webhooks.get(call.tenant, call["webhook_id"])
        query = call.query
        return await self.deliveries.page(
            call.tenant,
            ListQuery(limit=query.limit, page=query.page, parent=webhook.id, label=query.status),
        )

    async def resend_dead(self, call: ApiCall[Empty, Empty]) -> Resent:
        return Resent(resent=await self.deliveries.resend_dead(call.tenant, call["webhook_id"]))
