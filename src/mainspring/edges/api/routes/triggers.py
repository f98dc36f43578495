"""`/v1/mainspring/triggers`: signed calls from outside. Ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import anyio
from aiohttp import web
from msgspec import Struct

from mainspring.core.errors import TooLarge
from mainspring.edges.api.resource import Resource
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
from mainspring.service.webhooks.webhook_signing import SignedRequest

_BODY_SECONDS = 30.0
"""For what a sender sends to arrive."""


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
            *Resource(
                path=one,
                service=self.triggers,
                item=Trigger,
                create=CreateTrigger,
                created=TriggerWithSecret,
                update=UpdateTrigger,
                deleted=DeletedTrigger,
                is_extension=True,
                summaries={
                    "create": "Create a trigger; only this response contains its secret",
                    "list": "List triggers",
                    "get": "Get a trigger",
                    "update": "Update, enable or disable a trigger",
                    "delete": "Delete a trigger",
                },
            ).routes(),
            Route(
                method="POST",
                path=f"{one}/fire",
                handle=self.fire,
                summary="Fire a trigger: called by the sender, signed with the trigger's scheme",
                response_type=TriggerResult,
                upload="application/json",
                is_open=True,
                is_extension=True,
            ),
        )

    async def fire(self, call: ApiCall[Empty, Empty]) -> TriggerResult:
        body = await _read_raw_body(call.request, self.max_bytes)
        delivered = SignedRequest(headers=join_headers(call.request.headers.items()), body=body)
        return await self.trigger_intake.take(call["trigger_id"], delivered)


async def _read_raw_body(request: web.Request, max_bytes: int) -> bytes:
    """The body to the byte, as it was signed."""
    body = bytearray()
    with anyio.fail_after(_BODY_SECONDS):  # nobody knows yet who it is
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > max_bytes:
                raise TooLarge(f"at most {max_bytes} bytes are taken")
    return bytes(body)
