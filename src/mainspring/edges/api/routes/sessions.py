"""`/v1/sessions` and the slash commands of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.core.sender import Origin
from mainspring.edges.api.route import ApiCall, Empty, Route
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

    def routes(self) -> tuple[Route, ...]:
        one = "/v1/sessions/{session_id}"
        return (
            Route(
                method="POST",
                path="/v1/sessions",
                handle=self.create,
                summary="Create a session of an agent",
                body=CreateSession,
                response_type=SessionObject,
                role="user",
                for_agent_keys=True,
            ),
            Route(
                method="GET",
                path="/v1/sessions",
                handle=self.list,
                summary="List sessions",
                query=ListSessions,
                response_type=TwoWayPage[SessionObject],
                for_agent_keys=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Get a session",
                response_type=SessionObject,
                for_agent_keys=True,
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Update a session",
                body=UpdateSession,
                response_type=SessionObject,
                role="user",
                for_agent_keys=True,
            ),
            Route(
                method="POST",
                path=f"{one}/archive",
                handle=self.archive,
                summary="Archive a session: it accepts no more events",
                response_type=SessionObject,
                role="user",
                for_agent_keys=True,
            ),
            Route(
                method="POST",
                path=f"{one}/fork",
                handle=self.fork,
                summary="Fork a session",
                body=ForkSession,
                response_type=SessionObject,
                role="user",
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="DELETE",
                path=one,
                handle=self.delete,
                summary="Delete a session with its events",
                response_type=DeletedSession,
                role="user",
                for_agent_keys=True,
            ),
        )

    async def create(self, call: ApiCall[Empty, CreateSession]) -> SessionObject:
        return await self.sessions.create(
            call.who,
            call.body,
            origin=Origin(type="api", id=call.who.key_id),
            key=call.attempt_id,
        )

    async def list(self, call: ApiCall[ListSessions, Empty]) -> TwoWayPage[SessionObject]:
        return await self.sessions.page(call.who, call.query)

    async def get(self, call: ApiCall[Empty, Empty]) -> SessionObject:
        return await self.sessions.get(call.who, call["session_id"])

    async def update(self, call: ApiCall[Empty, UpdateSession]) -> SessionObject:
        return await self.sessions.update(call.who, call["session_id"], call.body)

    async def archive(self, call: ApiCall[Empty, Empty]) -> SessionObject:
        return await self.sessions.archive(call.who, call["session_id"])

    async def fork(self, call: ApiCall[Empty, ForkSession]) -> SessionObject:
        return await self.sessions.fork(call.who, call["session_id"], call.body)

    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedSession:
        await self.sessions.delete(call.who, call["session_id"])
        return DeletedSession(id=call["session_id"])


@dataclass(frozen=True, slots=True)
class CommandRoutes:
    commands: SessionCommands

    def routes(self) -> tuple[Route, ...]:
        path = "/v1/sessions/{session_id}/commands"
        return (
            Route(
                method="GET",
                path=path,
                handle=self.list,
                summary="List the slash commands of a session",
                response_type=Page[SlashCommand],
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=path,
                handle=self.give,
                summary="Run a slash command in a session",
                body=RunCommand,
                response_type=CommandResult,
                role="user",
                for_agent_keys=True,
                is_extension=True,
            ),
        )

    async def list(self, call: ApiCall[Empty, Empty]) -> Page[SlashCommand]:
        return await self.commands.page(call.who, call["session_id"])

    async def give(self, call: ApiCall[Empty, RunCommand]) -> CommandResult:
        return await self.commands.give(call.who, call["session_id"], call.body)
