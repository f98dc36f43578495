"""`/v1/sessions` and the slash commands of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from msgspec import Struct

from mainspring.core.sender import Origin
from mainspring.edges.api.route import ApiCall, Empty, RouteOptions, route
from mainspring.runtime.slash_commands import SlashCommand
from mainspring.service.sessions.session_commands import CommandResult, RunCommand, SessionCommands
from mainspring.service.sessions.session_listing import ListSessions, TwoWayPage
from mainspring.service.sessions.session_params import CreateSession, ForkSession, UpdateSession
from mainspring.service.sessions.session_view import SessionObject
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Page


class DeletedSession(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["session_deleted"] = "session_deleted"


@dataclass(frozen=True, slots=True)
class SessionRoutes:
    sessions: Sessions

    @route("POST /v1/sessions", "Create a session of an agent", role="user", for_agent_keys=True)
    async def create(self, call: ApiCall[Empty, CreateSession]) -> SessionObject:
        return await self.sessions.create(
            call.who,
            call.body,
            origin=Origin(type="api", id=call.who.key_id),
            key=call.attempt_id,
        )

    @route("GET /v1/sessions", "List sessions", for_agent_keys=True)
    async def list(self, call: ApiCall[ListSessions, Empty]) -> TwoWayPage[SessionObject]:
        return await self.sessions.page(call.who, call.query)

    @route("GET /v1/sessions/{session_id}", "Get a session", for_worker_keys=True)
    async def get(self, call: ApiCall[Empty, Empty]) -> SessionObject:
        return await self.sessions.get(call.who, call["session_id"])

    @route("POST /v1/sessions/{session_id}", "Update a session")
    async def update(self, call: ApiCall[Empty, UpdateSession]) -> SessionObject:
        return await self.sessions.update(call.who, call["session_id"], call.body)

    @route("POST /v1/sessions/{session_id}/archive", "Archive a session: it accepts no more events")
    async def archive(self, call: ApiCall[Empty, Empty]) -> SessionObject:
        return await self.sessions.archive(call.who, call["session_id"])

    @route("POST /v1/sessions/{session_id}/fork", "Fork a session", is_extension=True)
    async def fork(self, call: ApiCall[Empty, ForkSession]) -> SessionObject:
        return await self.sessions.fork(call.who, call["session_id"], call.body)

    @route("DELETE /v1/sessions/{session_id}", "Delete a session with its events")
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedSession:
        await self.sessions.delete(call.who, call["session_id"])
        return DeletedSession(id=call["session_id"])


@dataclass(frozen=True, slots=True)
class CommandRoutes:
    commands: SessionCommands
    route_options: ClassVar[RouteOptions] = {"is_extension": True}

    @route("GET /v1/sessions/{session_id}/commands", "List the slash commands of a session")
    async def list(self, call: ApiCall[Empty, Empty]) -> Page[SlashCommand]:
        return await self.commands.page(call.who, call["session_id"])

    @route("POST /v1/sessions/{session_id}/commands", "Run a slash command in a session")
    async def run(self, call: ApiCall[Empty, RunCommand]) -> CommandResult:
        return await self.commands.run(call.who, call["session_id"], call.body)
