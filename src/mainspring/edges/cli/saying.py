"""What somebody has typed, sent to a session: words, or a skill of the agent's own by its name."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy import LazyModule
from mainspring.runtime.agent import Agent
from mainspring.runtime.commands import known, typed, unescaped
from mainspring.runtime.outline import workspace_of
from mainspring.runtime.sessions import Session

if TYPE_CHECKING:
    from mainspring.runtime.skills import using
else:
    using = LazyModule("mainspring.runtime.skills.using")  # for agents that have any


def is_brought(agent: Agent, message: str) -> bool:
    """Whether it calls a skill or a command that the agent has of its own."""
    command = typed(message)
    brought = {each.name for each in known(agent) if each.kind != "built-in"}
    return command is not None and command.name in brought


def require_no_command(agent: Agent, message: str) -> None:
    """Raises: InvalidInput: it is one that only chat has, or that nobody has."""
    command = typed(message)
    if command is None or not command.name or is_brought(agent, message):
        return
    names = [each.name for each in known(agent)]
    if command.name in names:
        raise InvalidInput(f"/{command.name} is for `mainspring chat`")
    near = get_close_matches(command.name, names, n=1)
    unknown = InvalidInput(f"there is no command /{command.name}")
    unknown.add_note(f"did you mean /{near[0]}?" if near else "begin with // to say it as it is")
    raise unknown


async def say(settings: Settings, agent: Agent, session: Session, message: str) -> str:
    """The id of the message.

    Raises:
        InvalidInput: what it calls is not for users, or its file has changed.
    """
    if not is_brought(agent, message):
        return (await session.send(unescaped(message))).event_id
    facts = using.Facts(
        session_id=session.id,
        project=await workspace_of(session.log, session.id) or settings.folder,
        effort=agent.effort,
    )
    expanded = await using.expand_command(message, skills=agent.skills, facts=facts)
    if expanded is None:
        return (await session.send(message)).event_id
    blocks, used = expanded
    return (await session.send(blocks, skill=used.name)).event_id
