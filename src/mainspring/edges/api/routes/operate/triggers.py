"""`/v1/mainspring/triggers`, an extension: signed calls from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import anyio
from aiohttp import web
from msgspec import Struct

from mainspring.core.errors import TooLarge
from mainspring.edges.api.route import ApiCall, Empty, PageQuery, list_query, route
from mainspring.service.authorization.authentication import join_headers
from mainspring.service.schedules.trigger_intake import MAX_PAYLOAD_BYTES, TriggerIntake
from mainspring.service.schedules.triggers import (
    CreateTrigger,
    Trigger,
    TriggerResult,
    Triggers,
    TriggerWithSecret,
    UpdateTrigger,
)
from mainspring.service.storage.pagination import Page
from mainspring.service.webhooks.webhook_signing import SignedRequest

_BODY_SECONDS = 30.0
"""How long the body may take to arrive."""


class DeletedTrigger(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["trigger_deleted"] = "trigger_deleted"


@dataclass(frozen=True, slots=True)
class TriggerRoutes:
    triggers: Triggers
    trigger_intake: TriggerIntake
    max_bytes: int = MAX_PAYLOAD_BYTES

    @route(
        "POST /v1/mainspring/triggers", "Create a trigger; only this response contains its secret"
    )
    async def create(self, call: ApiCall[Empty, CreateTrigger]) -> TriggerWithSecret:
        return await self.triggers.create(call.tenant, call.body)

    @route("GET /v1/mainspring/triggers", "List triggers")
    async def list(self, call: ApiCall[PageQuery, Empty]) -> Page[Trigger]:
        return await self.triggers.page(call.tenant, list_query(call.query))

    @route("GET /v1/mainspring/triggers/{trigger_id}", "Get a trigger")
    async def get(self, call: ApiCall[Empty, Empty]) -> Trigger:
        return await self.triggers.get(call.tenant, call["trigger_id"])

    @route("POST /v1/mainspring/triggers/{trigger_id}", "Update, enable or disable a trigger")
    async def update(self, call: ApiCall[Empty, UpdateTrigger]) -> Trigger:
        return await self.triggers.update(call.tenant, call["trigger_id"], call.body)

    @route("DELETE /v1/mainspring/triggers/{trigger_id}", "Delete a trigger")
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedTrigger:
        await self.triggers.delete(call.tenant, call["trigger_id"])
        return DeletedTrigger(id=call["trigger_id"])

    @route(
        "POST /v1/mainspring/triggers/{trigger_id}/fire",
        "Fire a trigger: called by the sender, signed with the trigger's scheme",
        is_open=True,
        upload="application/json",
        role="viewer",
    )
    async def fire(self, call: ApiCall[Empty, Empty]) -> TriggerResult:
        body = await _read_raw_body(call.request, self.max_bytes)
        delivered = SignedRequest(headers=join_headers(call.request.headers.items()), body=body)
        return await self.trigger_intake.take(call["trigger_id"], delivered)


async def _read_raw_body(request: web.Request, max_bytes: int) -> bytes:
    """The exact bytes of the body, which the signature covers."""
    body = bytearray()
    with anyio.fail_after(_BODY_SECONDS):  # the sender is not authenticated yet
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > max_bytes:
                raise TooLarge(f"the body may have at most {max_bytes} bytes")
    return bytes(body)
