"""`/v1/mainspring/webhooks`: endpoints and what was sent to them. Ours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.service.storage.pagination import Limit, Page
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


class ListWebhooks(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None


class ListDeliveries(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None
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
            Route(
                method="POST",
                path="/v1/mainspring/webhooks",
                handle=self.create,
                summary="Make a webhook endpoint; the answer alone has its secret",
                body=CreateWebhook,
                response_type=WebhookWithSecret,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path="/v1/mainspring/webhooks",
                handle=self.list,
                summary="List webhook endpoints",
                query=ListWebhooks,
                response_type=Page[Webhook],
                is_extension=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Look at a webhook endpoint",
                response_type=Webhook,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Change, enable or disable a webhook endpoint",
                body=UpdateWebhook,
                response_type=Webhook,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="DELETE",
                path=one,
                handle=self.delete,
                summary="Delete a webhook endpoint and its deliveries",
                response_type=DeletedWebhook,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{one}/rotate_secret",
                handle=self.rotate,
                summary="Give a webhook endpoint a new secret; the answer alone has it",
                body=RotateSecret,
                response_type=WebhookWithSecret,
                role="operator",
                is_extension=True,
            ),
        )

    def _delivery_routes(self) -> tuple[Route, ...]:
        one = "/v1/mainspring/webhooks/{webhook_id}"
        delivery = "/v1/mainspring/webhook_deliveries/{delivery_id}"
        return (
            Route(
                method="POST",
                path=f"{one}/ping",
                handle=self.ping,
                summary="Try a webhook endpoint with an event that means nothing",
                response_type=Delivery,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{one}/deliveries",
                handle=self.list_deliveries,
                summary="List what was sent to a webhook endpoint, or is to be",
                query=ListDeliveries,
                response_type=Page[Delivery],
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{one}/resend_dead",
                handle=self.resend_dead,
                summary="Send again all that a webhook endpoint did not take",
                response_type=Resent,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=delivery,
                handle=self.get_delivery,
                summary="Look at a delivery",
                response_type=Delivery,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{delivery}/resend",
                handle=self.resend,
                summary="Send a delivery again",
                response_type=Delivery,
                role="operator",
                is_extension=True,
            ),
        )

    async def create(self, api_call: ApiCall[Empty, CreateWebhook]) -> WebhookWithSecret:
        return await self.webhooks.create(api_call.tenant, api_call.body)

    async def list(self, api_call: ApiCall[ListWebhooks, Empty]) -> Page[Webhook]:
        listing = ListQuery(limit=api_call.query.limit, page=api_call.query.page)
        return await self.webhooks.page(api_call.tenant, listing)

    async def get(self, api_call: ApiCall[Empty, Empty]) -> Webhook:
        return await self.webhooks.get(api_call.tenant, api_call["webhook_id"])

    async def update(self, api_call: ApiCall[Empty, UpdateWebhook]) -> Webhook:
        return await self.webhooks.update(api_call.tenant, api_call["webhook_id"], api_call.body)

    async def delete(self, api_call: ApiCall[Empty, Empty]) -> DeletedWebhook:
        await self.webhooks.delete(api_call.tenant, api_call["webhook_id"])
        return DeletedWebhook(id=api_call["webhook_id"])

    async def rotate(self, api_call: ApiCall[Empty, RotateSecret]) -> WebhookWithSecret:
        old_for = timedelta(seconds=api_call.body.old_valid_seconds)
        return await self.webhooks.rotate(api_call.tenant, api_call["webhook_id"], old_for=old_for)

    async def ping(self, api_call: ApiCall[Empty, Empty]) -> Delivery:
        made = await self.outbox.ping(api_call.tenant, api_call["webhook_id"])
        return await self.deliveries.attempt(api_call.tenant, made.id)

    async def list_deliveries(self, api_call: ApiCall[ListDeliveries, Empty]) -> Page[Delivery]:
        webhook = await self.webhooks.get(api_call.tenant, api_call["webhook_id"])
        query = api_call.query
        return await self.deliveries.page(
            api_call.tenant,
            ListQuery(limit=query.limit, page=query.page, parent=webhook.id, label=query.status),
        )

    async def resend_dead(self, api_call: ApiCall[Empty, Empty]) -> Resent:
        return Resent(
            resent=await self.deliveries.resend_dead(api_call.tenant, api_call["webhook_id"])
        )

    async def get_delivery(self, api_call: ApiCall[Empty, Empty]) -> Delivery:
        return await self.deliveries.get(api_call.tenant, api_call["delivery_id"])

    async def resend(self, api_call: ApiCall[Empty, Empty]) -> Delivery:
        return await self.deliveries.resend(api_call.tenant, api_call["delivery_id"])
