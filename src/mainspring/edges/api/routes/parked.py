"""`/v1/mainspring/parked`: sessions that are not run any more, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.keeping.drawer import Listing
from mainspring.service.keeping.page import Limit, Page
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.work.parking import Parked, Parking


class ListParked(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None


class Unparked(Struct, frozen=True, kw_only=True):
    id: str
    """Of the session."""
    type: Literal["unparked_session"] = "unparked_session"


@dataclass(frozen=True, slots=True)
class ParkedRoutes:
    parking: Parking
    sessions: Sessions

    def routes(self) -> tuple[Route, ...]:
        path = "/v1/mainspring/parked"
        return (
            Route(
                method="GET",
                path=path,
                handle=self.list,
                summary="List sessions that kept failing and are not run any more",
                query=ListParked,
                answer=Page[Parked],
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{path}/{{session_id}}",
                handle=self.get,
                summary="See why a session is not run any more",
                answer=Parked,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{path}/{{session_id}}/unpark",
                handle=self.unpark,
                summary="Try to run a parked session again",
                answer=Unparked,
                role="operator",
                is_extension=True,
            ),
        )

    async def list(self, call: Call[ListParked, Nothing]) -> Page[Parked]:
        listing = Listing(limit=call.query.limit, page=call.query.page)
        return await self.parking.page(call.tenant, listing)

    async def get(self, call: Call[Nothing, Nothing]) -> Parked:
        session = await self.sessions.record(call.who, call["session_id"])
        return await self.parking.get(call.tenant, session.id)

    async def unpark(self, call: Call[Nothing, Nothing]) -> Unparked:
        call.who.require_human()
        session = await self.sessions.record(call.who, call["session_id"])
        await self.parking.unpark(call.tenant, session.id)
        return Unparked(id=session.id)
