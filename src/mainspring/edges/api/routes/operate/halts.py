"""`/v1/mainspring/halts` and `/v1/mainspring/parked`: stopping and resuming agents, and sessions
that workers no longer run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.core.ids import FormerAgentId
from mainspring.edges.api.route import ApiCall, Empty, PageQuery, list_query, route
from mainspring.service.access.kill_switch import CreateHalt, Halt, Halts
from mainspring.service.jobs.parking import ParkedSession, Parking
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Page


class Resume(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent_id: FormerAgentId | None = None
    """`null`: the halt of the whole tenant."""


class Resumed(Struct, frozen=True, kw_only=True):
    agent_id: str | None


@dataclass(frozen=True, slots=True)
class HaltRoutes:
    halts: Halts

    @route("POST /v1/mainspring/halts", "Stop an agent, or all agents of the tenant")
    async def halt(self, call: ApiCall[Empty, CreateHalt]) -> Halt:
        return await self.halts.halt(call.tenant, call.who, call.body)

    @route("GET /v1/mainspring/halts", "List active halts")
    async def list(self, call: ApiCall[Empty, Empty]) -> Page[Halt]:
        return Page(data=await self.halts.of(call.tenant))

    @route("POST /v1/mainspring/halts/resume", "Resume an agent, or all agents of the tenant")
    async def resume(self, call: ApiCall[Empty, Resume]) -> Resumed:
        await self.halts.resume(call.tenant, call.who, call.body.agent_id)
        return Resumed(agent_id=call.body.agent_id)


class Unparked(Struct, frozen=True, kw_only=True):
    id: str
    """The id of the session."""
    type: Literal["unparked_session"] = "unparked_session"


@dataclass(frozen=True, slots=True)
class ParkedRoutes:
    parking: Parking
    sessions: Sessions

    @route("GET /v1/mainspring/parked", "List sessions that failed repeatedly and no longer run")
    async def list(self, call: ApiCall[PageQuery, Empty]) -> Page[ParkedSession]:
        listing = list_query(call.query)
        return await self.parking.page(call.tenant, listing)

    @route("GET /v1/mainspring/parked/{session_id}", "Get the reason why a session no longer runs")
    async def get(self, call: ApiCall[Empty, Empty]) -> ParkedSession:
        session = await self.sessions.record(call.who, call["session_id"])
        return await self.parking.get(call.tenant, session.id)

    @route(
        "POST /v1/mainspring/parked/{session_id}/unpark",
        "Run a parked session again",
        role="operator",
    )
    async def unpark(self, call: ApiCall[Empty, Empty]) -> Unparked:
        call.who.require_human()
        session = await self.sessions.record(call.who, call["session_id"])
        await self.parking.unpark(call.tenant, session.id)
        return Unparked(id=session.id)
