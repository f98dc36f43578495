"""`/v1/sessions`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.core.sender import Origin
from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.sessions.change import UpdateSession
from mainspring.service.sessions.listing import ListSessions, TwoWayPage
from mainspring.service.sessions.sessions import CreateSession, ForkSession, Sessions
from mainspring.service.sessions.view import SessionObject


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
                summary="Start a session of an agent",
                body=CreateSession,
                answer=SessionObject,
                role="user",
                for_agent_keys=True,
            ),
            Route(
                method="GET",
                path="/v1/sessions",
                handle=self.list,
                summary="List sessions",
                query=ListSessions,
                answer=TwoWayPage[SessionObject],
                for_agent_keys=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Look at a session",
                answer=SessionObject,
                for_agent_keys=True,
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Change a session",
                body=UpdateSession,
                answer=SessionObject,
                role="user",
                for_agent_keys=True,
            ),
            Route(
                method="POST",
                path=f"{one}/archive",
                handle=self.archive,
                summary="Take no more events in a session",
                answer=SessionObject,
                role="user",
                for_agent_keys=True,
            ),
            Route(
                method="POST",
                path=f"{one}/fork",
                handle=self.fork,
                summary="Start another session that begins as this one did",
                body=ForkSession,
                answer=SessionObject,
                role="user",
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="DELETE",
                path=one,
                handle=self.delete,
                summary="Delete a session with its events",
                answer=DeletedSession,
                role="user",
                for_agent_keys=True,
            ),
        )

    async def create(self, call: Call[Nothing, CreateSession]) -> SessionObject:
        return await self.sessions.create(
            call.who,
            call.body,
            origin=Origin(type="api", id=call.who.key_id),
            key=call.attempt_id,
        )

    async def list(self, call: Call[ListSessions, Nothing]) -> TwoWayPage[SessionObject]:
        return await self.sessions.page(call.who, call.query)

    async def get(self, call: Call[Nothing, Nothing]) -> SessionObject:
        return await self.sessions.get(call.who, call["session_id"])

    async def update(self, call: Call[Nothing, UpdateSession]) -> SessionObject:
        return await self.sessions.update(call.who, call["session_id"], call.body)

    async def archive(self, call: Call[Nothing, Nothing]) -> SessionObject:
        return await self.sessions.archive(call.who, call["session_id"])

    async def fork(self, call: Call[Nothing, ForkSession]) -> SessionObject:
        return await self.sessions.fork(call.who, call["session_id"], call.body)

    async def delete(self, call: Call[Nothing, Nothing]) -> DeletedSession:
        await self.sessions.delete(call.who, call["session_id"])
        return DeletedSession(id=call["session_id"])
