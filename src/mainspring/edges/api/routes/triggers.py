"""`/v1/mainspring/triggers`: signed calls from outside. Ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import anyio
from aiohttp import web
from msgspec import Struct

from mainspring.core.errors import TooLarge
from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.service.authorization.authentication import join_headers
from mainspring.service.schedules.trigger_intake import MAX_PAYLOAD_BYTES, TriggerIntake
from mainspring.service.schedules.trigger_types import (
    CreateTrigger,
    Trigger,
    TriggerResult,
    TriggerWithSecret,
    UpdateTrigger,
)
from mainspring.service.schedules.triggers import Triggers
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery
from mainspring.service.webhooks.webhook_signing import SignedRequest

_BODY_SECONDS = 30.0
"""For what a sender sends to arrive."""


class ListTriggers(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None


class DeletedTrigger(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["trigger_deleted"] = "trigger_deleted"


@dataclass(frozen=True, slots=True)
class TriggerRoutes:
    triggers: Triggers
    trigger_intake: TriggerIntake
    max_bytes: int = MAX_PAYLOAD_BYTES

    def routes(self) -> tuple[Route, ...]:
        one = "/v1/mainspring/triggers/{trigger_id}"
        return (
            Route(
                method="POST",
                path="/v1/mainspring/triggers",
                handle=self.create,
                summary="Make a trigger; the answer alone has its secret",
                body=CreateTrigger,
                response_type=TriggerWithSecret,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path="/v1/mainspring/triggers",
                handle=self.list,
                summary="List triggers",
                query=ListTriggers,
                response_type=Page[Trigger],
                is_extension=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Look at a trigger",
                response_type=Trigger,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Change, enable or disable a trigger",
                body=UpdateTrigger,
                response_type=Trigger,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="DELETE",
                path=one,
                handle=self.delete,
                summary="Delete a trigger",
                response_type=DeletedTrigger,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{one}/fire",
                handle=self.fire,
                summary="What a sender calls: signed, as the trigger's scheme says",
                response_type=TriggerResult,
                upload="application/json",
                is_open=True,
                is_extension=True,
            ),
        )

    async def create(self, api_call: ApiCall[Empty, CreateTrigger]) -> TriggerWithSecret:
        return await self.triggers.create(api_call.tenant, api_call.body)

    async def list(self, api_call: ApiCall[ListTriggers, Empty]) -> Page[Trigger]:
        listing = ListQuery(limit=api_call.query.limit, page=api_call.query.page)
        return await self.triggers.page(api_call.tenant, listing)

    async def get(self, api_call: ApiCall[Empty, Empty]) -> Trigger:
        return await self.triggers.get(api_call.tenant, api_call["trigger_id"])

    async def update(self, api_call: ApiCall[Empty, UpdateTrigger]) -> Trigger:
        return await self.triggers.update(api_call.tenant, api_call["trigger_id"], api_call.body)

    async def delete(self, api_call: ApiCall[Empty, Empty]) -> DeletedTrigger:
        await self.triggers.delete(api_call.tenant, api_call["trigger_id"])
        return DeletedTrigger(id=api_call["trigger_id"])

    async def fire(self, api_call: ApiCall[Empty, Empty]) -> TriggerResult:
        body = await _read_raw_body(api_call.request, self.max_bytes)
        delivered = SignedRequest(headers=join_headers(api_call.request.headers.items()), body=body)
        return await self.trigger_intake.take(api_call["trigger_id"], delivered)


async def _read_raw_body(request: web.Request, max_bytes: int) -> bytes:
    """The body to the byte, as it was signed."""
    body = bytearray()
    with anyio.fail_after(_BODY_SECONDS):  # nobody knows yet who it is
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > max_bytes:
                raise TooLarge(f"at most {max_bytes} bytes are taken")
    return bytes(body)
