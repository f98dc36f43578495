"""A user calls a skill as `/name`: what the model gets, and the fact that the log records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal

from mainspring.core.content import Block, TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import SkillUsed
from mainspring.harness.permissions.rule import parse_rule
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_body import load_body, refusing_runner, render_body
from mainspring.runtime.skills.substitution import (
    SkillFacts,
    SkillSubstitution,
    skill_call_block,
    substitute_facts,
)

_COMMAND = re.compile(r"/([\w][\w.:-]{0,127})(?:\s|$)")
_FORK_NOTE = (
    "The user wants you to use the skill {name}: call the tool skill with this name and these"
    " arguments, and report the result."
)
RUN_IT_YOURSELF = "run it yourself, if you need it"


async def expand_command(
    text: str, *, skills: Sequence[Skill], skill_facts: SkillFacts
) -> tuple[tuple[Block, ...], SkillUsed] | None:
    """Turn a user's `/name arguments` into what the model gets, and the fact to record; `None` if
    the text is not a command.

    Raises:
        InvalidInput: there is no such command, it is not for users, or its file has changed.
    """
    match = _match_skill(text, skills)
    if match is None:
        return None
    skill, arguments = match
    if not skill.for_user:
        raise InvalidInput(f"only the agent can use {skill.name}")
    marker = skill_call_block(skill.name, arguments)
    fact = user_skill_fact(skill, skill_facts)
    if skill.context == "fork":
        return (marker, TextBlock(_FORK_NOTE.format(name=skill.name))), fact
    body = await load_body(skill)
    text = await render_body(
        body, SkillSubstitution(arguments, skill, skill_facts), refusing_runner(RUN_IT_YOURSELF)
    )
    return (marker, TextBlock(text)), fact


def user_skill_fact(skill: Skill, facts: SkillFacts) -> SkillUsed:
    """The fact of a use by a user. A skill that runs as a subagent grants its permissions there,
    not here."""
    if skill.context == "fork":
        return SkillUsed(name=skill.name, hash=skill.hash, by="user")
    return skill_used_fact(skill, facts, by="user")


def skill_used_fact(
    skill: Skill,
    facts: SkillFacts,
    *,
    by: Literal["model", "user"],
    tool_use_id: str | None = None,
) -> SkillUsed:
    """The fact of a use. The permissions, model and effort of a skill count only if somebody trusts
    it; what it forbids always counts."""
    allowed = skill.allowed_tools if skill.is_trusted else ()
    return SkillUsed(
        name=skill.name,
        hash=skill.hash,
        by=by,
        tool_use_id=tool_use_id,
        allowed_tools=tuple(substitute_facts(rule, skill, facts) for rule in allowed),
        disallowed_tools=tuple(rule for rule in skill.disallowed_tools if _is_rule(rule)),
        model=skill.model if skill.is_trusted else None,
        effort=skill.effort if skill.is_trusted else None,
    )


def _match_skill(text: str, skills: Iterable[Skill]) -> tuple[Skill, str] | None:
    """The skill with the longest name that the text starts with, and its arguments.

    Raises:
        InvalidInput: it looks like a command, but there is no such command.
    """
    message = text.strip()
    if not message.startswith("/"):
        return None
    matches = [skill for skill in skills if _starts_with_name(message[1:], skill.name)]
    if matches:
        skill = max(matches, key=lambda skill: len(skill.name))
        return skill, message[1 + len(skill.name) :].strip()
    command = _COMMAND.match(message)
    if command is None:
        return None  # a path, or a comment
    usable = [skill.name for skill in skills if skill.for_user]
    raise InvalidInput(f"there is no command /{command[1]}{suggestion(command[1], usable, '/')}")


def _starts_with_name(message: str, name: str) -> bool:
    return message.startswith(name) and (len(message) == len(name) or message[len(name)].isspace())


def suggestion(name: str, names: Sequence[str], mark: str = "") -> str:
    similar = get_close_matches(name, names, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(f'{mark}{item}' for item in similar)}?" if similar else ""


def _is_rule(text: str) -> bool:
    """A rule that cannot be parsed would make every call require approval."""
    try:
        parse_rule(text, behavior="deny")
    except InvalidInput:
        return False
    return True
