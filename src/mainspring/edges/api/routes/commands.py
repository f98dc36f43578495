"""`/v1/sessions/{session_id}/commands`: slash commands, for who has no terminal."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.runtime.commands import Command
from mainspring.service.keeping.page import Page
from mainspring.service.sessions.commands import CommandResult, GiveCommand, SessionCommands


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
                summary="List the slash commands that a session knows",
                answer=Page[Command],
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=path,
                handle=self.give,
                summary="Give a slash command to a session",
                body=GiveCommand,
                answer=CommandResult,
                role="user",
                for_agent_keys=True,
                is_extension=True,
            ),
        )

    async def list(self, call: Call[Nothing, Nothing]) -> Page[Command]:
        return await self.commands.page(call.who, call["session_id"])

    async def give(self, call: Call[Nothing, GiveCommand]) -> CommandResult:
        return await self.commands.give(call.who, call["session_id"], call.body)
