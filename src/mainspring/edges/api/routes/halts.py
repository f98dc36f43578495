"""`/v1/mainspring/halts` and `/v1/mainspring/parked`: stopping and resuming agents, and sessions
that no worker runs any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.core.ids import FormerAgentId
from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.service.access.kill_switch import CreateHalt, Halt, Halts
from mainspring.service.jobs.parking import ParkedSession, Parking
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery


class Resume(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent_id: FormerAgentId | None = None
    """`None`: the halt of the whole tenant."""


class Resumed(Struct, frozen=True, kw_only=True):
    agent_id: str | None


@dataclass(frozen=True, slots=True)
class HaltRoutes:
    halts: Halts

    def routes(self) -> tuple[Route, ...]:
        path = "/v1/mainspring/halts"
        return (
            Route(
                method="POST",
                path=path,
                handle=self.halt,
                summary="Stop an agent, or all agents of the tenant",
                body=CreateHalt,
                response_type=Halt,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=path,
                handle=self.list,
                summary="List active stops",
                response_type=Page[Halt],
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{path}/resume",
                handle=self.resume,
                summary="Resume what was stopped",
                body=Resume,
                response_type=Resumed,
                role="operator",
                is_extension=True,
            ),
        )

    async def halt(self, call: ApiCall[Empty, CreateHalt]) -> Halt:
        return await self.halts.halt(call.tenant, call.who, call.body)

    async def list(self, call: ApiCall[Empty, Empty]) -> Page[Halt]:
        return Page(data=await self.halts.of(call.tenant))

    async def resume(self, call: ApiCall[Empty, Resume]) -> Resumed:
        await self.halts.resume(call.tenant, call.who, call.body.agent_id)
        return Resumed(agent_id=call.body.agent_id)


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
                summary="List sessions that failed repeatedly and no longer run",
                query=ListParked,
                response_type=Page[ParkedSession],
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{path}/{{session_id}}",
                handle=self.get,
                summary="Get the reason why a session no longer runs",
                response_type=ParkedSession,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{path}/{{session_id}}/unpark",
                handle=self.unpark,
                summary="Run a parked session again",
                response_type=Unparked,
                role="operator",
                is_extension=True,
            ),
        )

    async def list(self, call: ApiCall[ListParked, Empty]) -> Page[ParkedSession]:
        listing = ListQuery(limit=call.query.limit, page=call.query.page)
        return await self.parking.page(call.tenant, listing)

    async def get(self, call: ApiCall[Empty, Empty]) -> ParkedSession:
        session = await self.sessions.record(call.who, call["session_id"])
        return await self.parking.get(call.tenant, session.id)

    async def unpark(self, call: ApiCall[Empty, Empty]) -> Unparked:
        call.who.require_human()
        session = await self.sessions.record(call.who, call["session_id"])
        await self.parking.unpark(call.tenant, session.id)
        return Unparked(id=session.id)
