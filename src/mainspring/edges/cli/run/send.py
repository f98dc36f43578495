"""Sends a message of the user to a session; expands skills and commands of the agent."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.error_table import with_hints
from mainspring.runtime.agent import Agent
from mainspring.runtime.session.session import Session
from mainspring.runtime.session.session_summary import workspace_of
from mainspring.runtime.slash_commands import (
    PROMPT_PREFIX,
    available_commands,
    parse_command,
    unescape_message,
)

if TYPE_CHECKING:
    from mainspring.runtime.skills import skill_command
else:
    skill_command = LazyModule("mainspring.runtime.skills.skill_command")


def is_agent_command(agent: Agent, message: str) -> bool:
    """Whether a message calls a skill or a command that the agent defines."""
    command = parse_command(message)
    if command is None:
        return False
    names = {item.name for item in available_commands(agent) if item.kind != "built-in"}
    return command.name in names


def reject_slash_command(agent: Agent, message: str) -> None:
    """Raises: InvalidInput: the message is a command of chat, or an unknown one."""
    command = parse_command(message)
    if command is None or not command.name or is_agent_command(agent, message):
        return
    if command.name.startswith(PROMPT_PREFIX):
        return
    names = [item.name for item in available_commands(agent)]
    if command.name in names:
        raise InvalidInput(f"/{command.name} is for `mainspring chat`")
    similar = get_close_matches(command.name, names, n=1)
    hint = f"did you mean /{similar[0]}?" if similar else "begin with // to send it as text"
    raise with_hints(InvalidInput(f"there is no command /{command.name}"), hint)


async def send_message(settings: Settings, agent: Agent, session: Session, message: str) -> str:
    """Returns the id of the message.

    Raises:
        InvalidInput: the skill is not for users, or its file has changed.
    """
    if not is_agent_command(agent, message):
        return (await session.send(unescape_message(message))).event_id
    facts = skill_command.SkillFacts(
        session_id=session.id,
        project=await workspace_of(session.log, session.id) or settings.folder,
        effort=agent.effort,
    )
    expanded = await skill_command.expand_command(message, skills=agent.skills, skill_facts=facts)
    if expanded is None:
        return (await session.send(message)).event_id
    blocks, skill = expanded
    return (await session.send(blocks, skill=skill.name)).event_id
