"""Slash commands of a session for clients without a terminal.

They follow the same rules as the rest of the API: no command bypasses them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.harness.permissions.policy import parse_mode
from mainspring.runtime.command_results import SlashCommandResult, SubmittedResult
from mainspring.runtime.slash_commands import (
    CommandContext,
    SlashCommand,
    available_commands,
    run_command,
    similar_names,
)
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.event_sender import EventSender, check_open
from mainspring.service.sessions.events.event_content import SendMessage
from mainspring.service.sessions.session_reports import require_readable_log
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Page

MAX_ARGUMENT_CHARS = 100_000  # of a command
_USER_MODES = ("plan", "default")
"""Modes that grant nothing beyond the permissions of the agent."""


class RunCommand(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    """The name with or without its slash."""
    arguments: Annotated[str, Meta(max_length=MAX_ARGUMENT_CHARS)] = ""


class CommandResult(Struct, frozen=True, kw_only=True):
    session_id: str
    name: str
    reply: SlashCommandResult
    type: Literal["command_result"] = "command_result"


class SessionCommands:
    def __init__(self, sessions: Sessions, event_sender: EventSender) -> None:
        self._sessions = sessions
        self._event_sender = event_sender

    async def page(self, principal: Principal, session_id: str) -> Page[SlashCommand]:
        """All commands: the built-in ones, then those of the agent. Raises: NotFound."""
        record = await self._sessions.record(principal, session_id)
        actor = await self._sessions.dependencies.resolved_agent(principal.tenant, record)
        return Page(data=available_commands(actor.agent))

    async def run(
        self, principal: Principal, session_id: str, request: RunCommand
    ) -> CommandResult:
        """Raises: NotFound, InvalidInput, Forbidden."""
        session = await self._sessions.find(principal, session_id)
        check_open(session)
        name, arguments = request.name.removeprefix("/"), request.arguments.strip()
        _check(principal, name, arguments)
        require_readable_log(session_id, session.row.head.seq)
        actor = await self._sessions.dependencies.resolved_agent(principal.tenant, session.record)
        at = CommandContext(
            log=self._sessions.log,
            session_id=session_id,
            agent=actor.agent,
            sender=principal.sender,
        )
        commands = available_commands(actor.agent)
        if any(command.name == name and command.kind != "built-in" for command in commands):
            await self._send_message(principal, session_id, f"/{name} {arguments}".rstrip())
            reply: SlashCommandResult | None = SubmittedResult(
                text=f"/{name} was sent to the agent", is_work=True
            )
        elif name == "plan" and arguments:
            reply = await run_command(at, name)
            await self._send_message(principal, session_id, arguments)
        else:
            reply = await run_command(at, name, arguments)
        if reply is None:
            raise InvalidInput(_unknown_command_message(name, commands))
        if isinstance(reply, SubmittedResult):
            await self._sessions.dependencies.wake_session(principal.tenant, session.record)
        return CommandResult(session_id=session_id, name=name, reply=reply)

    async def _send_message(self, principal: Principal, session_id: str, text: str) -> None:
        await self._event_sender.send(
            principal, session_id, [SendMessage(content=(TextBlock(text),))]
        )


def _check(principal: Principal, name: str, arguments: str) -> None:
    """Check that the principal may run the command: some change permissions or rate the agent.

    Raises: InvalidInput, Forbidden.
    """
    if name in ("good", "bad"):
        principal.require_human()
    if not arguments:
        return
    if name == "approve":
        raise InvalidInput(
            "send a user.tool_confirmation, or use /v1/mainspring/approvals: both check who may"
            " answer. /approve without arguments lists the waiting calls"
        )
    if name == "mode":
        principal.require_human()
        principal.require("user" if parse_mode(arguments) in _USER_MODES else "operator")


def _unknown_command_message(name: str, slash_commands: list[SlashCommand]) -> str:
    if any(slash_command.name == name for slash_command in slash_commands):
        return f"/{name} concerns the terminal client; it has no effect here"
    similar = similar_names(name, slash_commands)
    hint = f"; did you mean {' or '.join(f'/{item}' for item in similar)}?" if similar else ""
    return f"there is no command /{name}{hint}"
