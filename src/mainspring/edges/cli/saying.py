"""What somebody has typed, sent to a session: words, or a skill of the agent's own by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.config import Settings
from mainspring.core.lazy import LazyModule
from mainspring.runtime.agent import Agent
from mainspring.runtime.commands import known, typed
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


async def say(settings: Settings, agent: Agent, session: Session, message: str) -> str:
    """The id of the message.

    Raises:
        InvalidInput: what it calls is not for users, or its file has changed.
    """
    if not is_brought(agent, message):
        return (await session.send(message)).event_id
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
