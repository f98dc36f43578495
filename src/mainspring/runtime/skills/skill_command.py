"""A user calls a skill as `/name`: what the model gets, and the fact that the log records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal

from mainspring.core.content import Block, TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.core.facts import SkillUsed
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
    "The user wants the skill {name} to be used: call the tool skill with this name and these"
    " arguments, and tell what came of it."
)
RUN_IT_YOURSELF = "run it yourself, if you need it"


async def expand_command(
    text: str, *, skills: Sequence[Skill], skill_facts: SkillFacts
) -> tuple[tuple[Block, ...], SkillUsed] | None:
    """What a user's `/name arguments` is to the model, and the fact of it; `None` if a text is no
    command.

    Raises:
        InvalidInput: there is no such command, it is not for users, or its file has changed.
    """
    found = _match_skill(text, skills)
    if found is None:
        return None
    skill, arguments = found
    if not skill.for_user:
        raise InvalidInput(f"{skill.name} is for the agent to use by itself")
    named = skill_call_block(skill.name, arguments)
    fact = user_skill_fact(skill, skill_facts)
    if skill.context == "fork":
        return (named, TextBlock(_FORK_NOTE.format(name=skill.name))), fact
    body = await load_body(skill)
    text = await render_body(
        body, SkillSubstitution(arguments, skill, skill_facts), refusing_runner(RUN_IT_YOURSELF)
    )
    return (named, TextBlock(text)), fact


def user_skill_fact(skill: Skill, skill_facts: SkillFacts) -> SkillUsed:
    """By a user; what a skill allows that runs apart, it allows there and not here."""
    if skill.context == "fork":
        return SkillUsed(name=skill.name, hash=skill.hash, by="user")
    return skill_used_fact(skill, skill_facts, by="user")


def skill_used_fact(
    skill: Skill,
    skill_facts: SkillFacts,
    *,
    by: Literal["model", "user"],
    tool_use_id: str | None = None,
) -> SkillUsed:
    """What it allows, and the model and effort that it asks for, count only if somebody has vouched
    for it; what it forbids, always."""
    allowed = skill.allowed_tools if skill.is_trusted else ()
    return SkillUsed(
        name=skill.name,
        hash=skill.hash,
        by=by,
        tool_use_id=tool_use_id,
        allowed_tools=tuple(substitute_facts(rule, skill, skill_facts) for rule in allowed),
        disallowed_tools=tuple(rule for rule in skill.disallowed_tools if _is_rule(rule)),
        model=skill.model if skill.is_trusted else None,
        effort=skill.effort if skill.is_trusted else None,
    )


def _match_skill(text: str, skills: Iterable[Skill]) -> tuple[Skill, str] | None:
    """The skill with the longest name that a text begins with, and what follows.

    Raises:
        InvalidInput: it looks like a command, and there is none.
    """
    said = text.strip()
    if not said.startswith("/"):
        return None
    named = [skill for skill in skills if _starts_with_name(said[1:], skill.name)]
    if named:
        skill = max(named, key=lambda each: len(each.name))
        return skill, said[1 + len(skill.name) :].strip()
    found = _COMMAND.match(said)
    if found is None:
        return None  # a path, or a comment
    usable = [skill.name for skill in skills if skill.for_user]
    raise InvalidInput(f"there is no command /{found[1]}{suggestion(found[1], usable, '/')}")


def _starts_with_name(said: str, name: str) -> bool:
    return said.startswith(name) and (len(said) == len(name) or said[len(name)].isspace())


def suggestion(name: str, known: Sequence[str], mark: str = "") -> str:
    near = get_close_matches(name, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(f'{mark}{item}' for item in near)}?" if near else ""


def _is_rule(text: str) -> bool:
    """What cannot be read would make a person be asked about everything."""
    try:
        parse_rule(text, behavior="deny")
    except InvalidInput:
        return False
    return True
