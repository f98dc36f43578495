"""Messages that call a skill, as `/name what follows`: what that says to the model."""

from __future__ import annotations

from msgspec.structs import replace

from mainspring.core.content import TextBlock
from mainspring.core.events import ClientPayload, UserMessage
from mainspring.runtime.skills.skill_command import expand_command
from mainspring.runtime.skills.substitution import SkillFacts
from mainspring.runtime.slash_commands import parse_command
from mainspring.service.sessions.dependencies import SessionDependencies
from mainspring.service.sessions.session_agent import skills_of
from mainspring.service.sessions.session_record import SessionRecord


async def expand_skill_command(
    dependencies: SessionDependencies, tenant: str, session: SessionRecord, payload: ClientPayload
) -> ClientPayload:
    """With a skill's text in the place of its name; anything else is as it was, as a message may
    well begin with a slash.

    Raises: InvalidInput: the skill is not there as it was.
    """
    if not isinstance(payload, UserMessage) or not skills_of(session.agent):
        return payload
    first, *more = payload.content
    command = parse_command(first.text) if isinstance(first, TextBlock) else None
    if command is None or not isinstance(first, TextBlock):
        return payload
    actor = await dependencies.resolved_agent(tenant, session)
    skills = actor.agent.skills
    if not any(skill.for_user and skill.name == command.name for skill in skills):
        return payload
    facts = SkillFacts(session_id=session.id, project=actor.workspace, effort=actor.agent.effort)
    expanded = await expand_command(first.text, skills=skills, skill_facts=facts)
    if expanded is None:
        return payload
    blocks, used = expanded
    return replace(payload, content=(*blocks, *more), skill=used.name)
