"""Using a skill: by the model with the tool `skill`, or by a user as `/name`. The text must
still be what the session began with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from mainspring.core.content import Block, TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.core.facts import SkillUsed
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.permissions.policy import PolicyRule
from mainspring.harness.permissions.rule import parse_rule
from mainspring.harness.state.thread import Thread
from mainspring.harness.state.thread_tree import ThreadNode
from mainspring.runtime.agent import Agent
from mainspring.runtime.skills.catalogue import is_in_catalogue, skill_search_tool
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_body import (
    MAX_CHARS,
    bash_runner,
    has_commands,
    load_body,
    refusing_runner,
    render_body,
)
from mainspring.runtime.skills.substitution import (
    SkillFacts,
    SkillSubstitution,
    skill_call_block,
    substitute_facts,
)
from mainspring.runtime.subagent import GENERAL
from mainspring.runtime.subagents.delegation import (
    DELEGATION_TRAITS,
    DelegationRequest,
    delegate,
    refuse,
)
from mainspring.runtime.subagents.supervisor import SubagentSupervisor

_COMMAND = re.compile(r"/([\w][\w.:-]{0,127})(?:\s|$)")
_READING = Traits(read_only=True, concurrent=True, in_doubt="retry", max_chars=2 * MAX_CHARS)
_RUNNING = Traits(max_chars=2 * MAX_CHARS)
_UNTRUSTED = "nobody has vouched for this skill as it is now"
_FORK_NOTE = (
    "The user wants the skill {name} to be used: call the tool skill with this name and these"
    " arguments, and tell what came of it."
)
_RUN_IT_YOURSELF = "run it yourself, if you need it"
_SPEC = ToolSpec(
    name="skill",
    description=(
        "Bring up a skill: you get its instructions, and follow them. Some are carried out by a"
        " subagent instead, and you get what it says in the end."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Of a skill that you were told of."},
            "arguments": {"type": "string", "description": "What it is to be used on or with."},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)


def skill_tools(supervisor: SubagentSupervisor, node: ThreadNode, agent: Agent) -> list[Tool]:
    """The tool `skill`, for a thread that has any to use; `skill_search`, if not all are listed."""
    if agent.is_coordinator or not any(map(_is_for_tool, agent.skills)):
        return []
    unlisted = [skill for skill in agent.skills if is_in_catalogue(skill) and not skill.is_listed]
    return [
        _skill_tool(supervisor, node, agent),
        *([skill_search_tool(unlisted)] if unlisted else []),
    ]


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
        body, SkillSubstitution(arguments, skill, skill_facts), refusing_runner(_RUN_IT_YOURSELF)
    )
    return (named, TextBlock(text)), fact


def skill_call_lookup(
    agent: Agent, session_id: str, main: Thread
) -> Callable[[str | None], SkillUsed | None]:
    """For a desk: what it means that a user's message calls one of the agent's skills."""

    def fact(name: str | None) -> SkillUsed | None:
        meant = [skill for skill in agent.skills if name == skill.name and skill.for_user]
        return user_skill_fact(meant[0], _facts_of(session_id, main, agent)) if meant else None

    return fact


def user_skill_fact(skill: Skill, skill_facts: SkillFacts) -> SkillUsed:
    """By a user; what a skill allows that runs apart, it allows there and not here."""
    if skill.context == "fork":
        return SkillUsed(name=skill.name, hash=skill.hash, by="user")
    return skill_used_fact(skill, skill_facts, by="user")


def skill_folders(agent: Agent) -> list[Path]:
    """What skills bring with them: to be read and run by whoever uses one, and not changed."""
    own = (
        skill
        for subagent in agent.subagents
        if subagent.own is not None
        for skill in subagent.own.skills
    )
    every = (*agent.skills, *own)
    kept = (skill for skill in every if skill.kind == "skill" and skill.file)
    return [Path(folder) for folder in dict.fromkeys(skill.folder for skill in kept)]


def reading_rules(agent: Agent) -> tuple[PolicyRule, ...]:
    """Nobody need be asked before a file of a skill is read, wherever that stands."""
    return tuple(
        PolicyRule(text=f"Read(/{folder.as_posix()}/**)", behavior="allow", source="skills")
        for folder in skill_folders(agent)
    )


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


@dataclass(frozen=True, slots=True)
class _SkillCall:
    """One call of the tool."""

    supervisor: SubagentSupervisor
    node: ThreadNode
    agent: Agent
    call: Call

    async def of(self, skill: Skill) -> ToolResult:
        facts = _facts_of(self.call.session_id, self.supervisor.thread_tree.main.thread, self.agent)
        arguments = str(self.call.input.get("arguments") or "")
        fact = skill_used_fact(skill, facts, by="model", tool_use_id=self.call.id)
        filling = SkillSubstitution(arguments, skill, facts)
        if skill.context == "fork":
            return await self._by_another(skill, filling, fact)
        body = await load_body(skill)
        context = self.supervisor.context_of(self.node)
        if context is None or not skill.is_trusted or not has_commands(body):
            text = await render_body(body, filling, refusing_runner(_UNTRUSTED))
            return ToolResult((TextBlock(text),), facts=(fact,))
        context.note(fact)  # what it allows, it allows its own commands
        return ToolResult.text(await render_body(body, filling, bash_runner(context, self.call)))

    async def _by_another(
        self, skill: Skill, skill_substitution: SkillSubstitution, fact: SkillUsed
    ) -> ToolResult:
        """Its text is a subagent's task, and what it allows is for that one."""
        is_called = self.supervisor.thread_tree.created_by(self.call.id) is not None
        text = (
            ""
            if is_called
            else await render_body(
                await load_body(skill), skill_substitution, refusing_runner(_RUN_IT_YOURSELF)
            )
        )
        wanted = DelegationRequest(
            kind=_subagent_type(skill, self.agent),
            description=skill.name,
            prompt=text,
            model=skill.model,
            is_background=skill.is_background,
        )
        return await delegate(self.supervisor, self.node, self.call, wanted, fact)


def _facts_of(session_id: str, main: Thread, agent: Agent) -> SkillFacts:
    sandbox = main.session_state.sandbox
    return SkillFacts(
        session_id=session_id,
        project="" if sandbox is None else sandbox.workspace,
        effort=agent.effort,
    )


def _subagent_type(skill: Skill, agent: Agent) -> str:
    """The type that it names, ours or Claude Code's: `Explore` is `explore`."""
    named = (skill.agent or "").casefold()
    known = {kind.name.casefold(): kind.name for kind in agent.subagents}
    return known.get(named, GENERAL.name)


def _skill_tool(supervisor: SubagentSupervisor, node: ThreadNode, agent: Agent) -> Tool:
    skills = {skill.name: skill for skill in agent.skills}

    async def run(call: Call) -> ToolResult:
        skill = skills[_name(call.input)]
        if not skill.for_model and not _is_called_for(node, skill):
            return refuse(
                f"{skill.name} is for the user to call, as /{skill.name}. Do not do what it says"
                " by other means; say that they can call it."
            )
        try:
            return await _SkillCall(supervisor, node, agent, call).of(skill)
        except InvalidInput as error:
            return refuse(f"Not used: {error}.")

    def traits(given: Mapping[str, object]) -> Traits:
        skill = skills.get(_name(given))
        if skill is not None and skill.context == "fork":
            return DELEGATION_TRAITS
        return _RUNNING if skill is not None and skill.is_trusted else _READING

    return Tool(
        spec=_SPEC, run=run, traits=traits, invalid=lambda given: _input_error(_name(given), skills)
    )


def _name(given: Mapping[str, object]) -> str:
    return str(given.get("name", "")).removeprefix("/")


def _is_for_tool(skill: Skill) -> bool:
    return skill.for_model or (skill.for_user and skill.context == "fork")


def _is_called_for(node: ThreadNode, skill: Skill) -> bool:
    """The user has called it in this run, and it takes a subagent to do it."""
    return any(
        item.name == skill.name and item.by == "user" for item in node.thread.session_state.skills
    )


def _input_error(name: str, skills: Mapping[str, Skill]) -> str | None:
    if name in skills:
        return None
    usable = [skill.name for skill in skills.values() if skill.for_model]
    return f"The input is not valid:\n- name: there is no skill {name!r}{_suggestion(name, usable)}"


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
    raise InvalidInput(f"there is no command /{found[1]}{_suggestion(found[1], usable, '/')}")


def _starts_with_name(said: str, name: str) -> bool:
    return said.startswith(name) and (len(said) == len(name) or said[len(name)].isspace())


def _suggestion(name: str, known: Sequence[str], mark: str = "") -> str:
    near = get_close_matches(name, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(f'{mark}{item}' for item in near)}?" if near else ""


def _is_rule(text: str) -> bool:
    """What cannot be read would make a person be asked about everything."""
    try:
        parse_rule(text, behavior="deny")
    except InvalidInput:
        return False
    return True
