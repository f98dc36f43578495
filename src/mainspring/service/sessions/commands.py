"""Slash commands of a session for who has no terminal: what there is, and what comes of one.

They do what the API does elsewhere, by the same rules: no command is a way around them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.harness.permissions.policy import parse_mode
from mainspring.runtime.commands import At, Command, known, near, perform
from mainspring.runtime.replies import Reply, Sent
from mainspring.service.access.principal import Principal
from mainspring.service.keeping.page import Page
from mainspring.service.sessions.insights import require_short
from mainspring.service.sessions.sending import Sending, check_open
from mainspring.service.sessions.sending_params import SendMessage
from mainspring.service.sessions.sessions import Sessions

MAX_ARGUMENT_CHARS = 100_000
_FOR_USERS = ("plan", "default")
"""Modes that let no more pass than any agent of the service may do by itself."""


class GiveCommand(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    """With or without its slash."""
    arguments: Annotated[str, Meta(max_length=MAX_ARGUMENT_CHARS)] = ""


class CommandResult(Struct, frozen=True, kw_only=True):
    session_id: str
    name: str
    reply: Reply
    type: Literal["command_result"] = "command_result"


class SessionCommands:
    def __init__(self, sessions: Sessions, sending: Sending) -> None:
        self._sessions = sessions
        self._sending = sending

    async def page(self, who: Principal, session_id: str) -> Page[Command]:
        """All that there are: ours, then those of the agent. Raises: NotFound."""
        record = await self._sessions.record(who, session_id)
        actor = await self._sessions.premises.actor(who.tenant, record)
        return Page(data=known(actor.agent))

    async def give(self, who: Principal, session_id: str, asked: GiveCommand) -> CommandResult:
        """Raises: NotFound, InvalidInput, Forbidden."""
        standing = await self._sessions.find(who, session_id)
        check_open(standing)
        name, arguments = asked.name.removeprefix("/"), asked.arguments.strip()
        _check(who, name, arguments)
        require_short(session_id, standing.row.head.seq)
        actor = await self._sessions.premises.actor(who.tenant, standing.record)
        at = At(log=self._sessions.log, session_id=session_id, agent=actor.agent, sender=who.sender)
        commands = known(actor.agent)
        if any(each.name == name and each.kind != "built-in" for each in commands):
            await self._say(who, session_id, f"/{name} {arguments}".rstrip())
            reply: Reply | None = Sent(text=f"/{name} is with the agent", is_work=True)
        elif name == "plan" and arguments:
            reply = await perform(at, name)
            await self._say(who, session_id, arguments)
        else:
            reply = await perform(at, name, arguments)
        if reply is None:
            raise InvalidInput(_unknown(name, commands))
        if isinstance(reply, Sent):
            await self._sessions.premises.wake(who.tenant, session_id)
        return CommandResult(session_id=session_id, name=name, reply=reply)

    async def _say(self, who: Principal, session_id: str, text: str) -> None:
        await self._sending.send(who, session_id, [SendMessage(content=(TextBlock(text),))])


def _check(who: Principal, name: str, arguments: str) -> None:
    """What changes what a session may do is for those who may change that.

    Raises: InvalidInput, Forbidden.
    """
    if not arguments:
        return
    if name == "approve":
        raise InvalidInput(
            "answer with a user.tool_confirmation, or at /v1/mainspring/approvals: there it is"
            " known who may; /approve alone lists what waits"
        )
    if name == "mode":
        who.require_human()
        who.require("user" if parse_mode(arguments) in _FOR_USERS else "operator")


def _unknown(name: str, commands: list[Command]) -> str:
    if any(each.name == name for each in commands):
        return f"/{name} is about a client's own state: there is nothing to do here"
    meant = near(name, commands)
    hint = f"; did you mean {' or '.join(f'/{each}' for each in meant)}?" if meant else ""
    return f"there is no command /{name}{hint}"
