"""The tool `skill`, for the model. A skill whose text has changed since the session began cannot be
used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import SkillUsed
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
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
from mainspring.runtime.skills.skill_command import (
    RUN_IT_YOURSELF,
    skill_used_fact,
    suggestion,
    user_skill_fact,
)
from mainspring.runtime.skills.substitution import SkillFacts, SkillSubstitution
from mainspring.runtime.subagent import GENERAL
from mainspring.runtime.subagents.delegation import DELEGATION_TRAITS, delegate, new_thread, refuse
from mainspring.runtime.subagents.supervisor import SubagentSupervisor

_READING = Traits(read_only=True, concurrent=True, in_doubt="retry", max_chars=2 * MAX_CHARS)
_RUNNING = Traits(max_chars=2 * MAX_CHARS)
_UNTRUSTED = "nobody has trusted this skill in its current state"
_SPEC = ToolSpec(
    name="skill",
    description=(
        "Use a skill: you get its instructions and follow them. Some skills are carried out by a"
        " subagent instead, and you get its final message."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The name of a skill."},
            "arguments": {"type": "string", "description": "What to use it on or with."},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)


def skill_tools(supervisor: SubagentSupervisor, node: ThreadNode, agent: Agent) -> list[Tool]:
    """The tool `skill` for a thread that has skills; with `skill_search`, if not all of them are
    listed."""
    if agent.is_coordinator or not any(map(_is_for_tool, agent.skills)):
        return []
    unlisted = [skill for skill in agent.skills if is_in_catalogue(skill) and not skill.is_listed]
    return [
        _skill_tool(supervisor, node, agent),
        *([skill_search_tool(unlisted)] if unlisted else []),
    ]


def skill_call_lookup(
    agent: Agent, session_id: str, main: Thread
) -> Callable[[str | None], SkillUsed | None]:
    """Return the function that gives the fact to record when a user's message calls a skill."""

    def fact(name: str | None) -> SkillUsed | None:
        matches = [skill for skill in agent.skills if name == skill.name and skill.for_user]
        return user_skill_fact(matches[0], _facts_of(session_id, main, agent)) if matches else None

    return fact


class _SkillCall(Struct, frozen=True):
    """One call of the tool `skill`."""

    supervisor: SubagentSupervisor
    node: ThreadNode
    agent: Agent
    call: Call

    async def use(self, skill: Skill) -> ToolResult:
        facts = _facts_of(self.call.session_id, self.supervisor.thread_tree.main.thread, self.agent)
        arguments = str(self.call.input.get("arguments") or "")
        fact = skill_used_fact(skill, facts, by="model", tool_use_id=self.call.id)
        substitution = SkillSubstitution(arguments, skill, facts)
        if skill.context == "fork":
            return await self._run_in_subagent(skill, substitution, fact)
        body = await load_body(skill)
        context = self.supervisor.context_of(self.node)
        if context is None or not skill.is_trusted or not has_commands(body):
            text = await render_body(body, substitution, refusing_runner(_UNTRUSTED))
            return ToolResult((TextBlock(text),), facts=(fact,))
        context.note(fact)  # its permissions also apply to the commands in its text
        return ToolResult.text(
            await render_body(body, substitution, bash_runner(context, self.call))
        )

    async def _run_in_subagent(
        self, skill: Skill, substitution: SkillSubstitution, fact: SkillUsed
    ) -> ToolResult:
        """Run the skill in a subagent, with its text as the task. The permissions are granted to
        that subagent."""
        is_started = self.supervisor.thread_tree.created_by(self.call.id) is not None
        text = (
            ""
            if is_started
            else await render_body(
                await load_body(skill), substitution, refusing_runner(RUN_IT_YOURSELF)
            )
        )
        created = replace(
            new_thread(self.call, self.node, _subagent_type(skill, self.agent)),
            mode="background" if skill.is_background else "foreground",
            model=skill.model if skill.is_trusted else None,
            description=skill.name,
        )
        return await delegate(self.supervisor, self.node, created, text, fact)


def _facts_of(session_id: str, main: Thread, agent: Agent) -> SkillFacts:
    sandbox = main.session_state.sandbox
    return SkillFacts(
        session_id=session_id,
        project="" if sandbox is None else sandbox.workspace,
        effort=agent.effort,
    )


def _subagent_type(skill: Skill, agent: Agent) -> str:
    """The type that the skill names, in our spelling or Claude Code's: `Explore` is `explore`."""
    name = (skill.agent or "").casefold()
    types = {kind.name.casefold(): kind.name for kind in agent.subagents}
    return types.get(name, GENERAL.name)


def _skill_tool(supervisor: SubagentSupervisor, node: ThreadNode, agent: Agent) -> Tool:
    skills = {skill.name: skill for skill in agent.skills}

    async def run(call: Call) -> ToolResult:
        skill = skills[_name(call.input)]
        if not skill.for_model and not _was_called_by_user(node, skill):
            return refuse(
                f"Only the user can call {skill.name}, as /{skill.name}. Do not do what it says"
                " by other means; tell the user that they can call it."
            )
        try:
            return await _SkillCall(supervisor, node, agent, call).use(skill)
        except InvalidInput as error:
            return refuse(f"Not used: {error}.")

    def traits(tool_input: Mapping[str, object]) -> Traits:
        skill = skills.get(_name(tool_input))
        if skill is not None and skill.context == "fork":
            return DELEGATION_TRAITS
        return _RUNNING if skill is not None and skill.is_trusted else _READING

    return Tool(
        spec=_SPEC,
        run=run,
        traits=traits,
        invalid=lambda tool_input: _input_error(_name(tool_input), skills),
    )


def _name(tool_input: Mapping[str, object]) -> str:
    return str(tool_input.get("name", "")).removeprefix("/")


def _is_for_tool(skill: Skill) -> bool:
    return skill.for_model or (skill.for_user and skill.context == "fork")


def _was_called_by_user(node: ThreadNode, skill: Skill) -> bool:
    """Whether the user called the skill in this run, and it needs a subagent."""
    return any(
        item.name == skill.name and item.by == "user" for item in node.thread.session_state.skills
    )


def _input_error(name: str, skills: Mapping[str, Skill]) -> str | None:
    if name in skills:
        return None
    usable = [skill.name for skill in skills.values() if skill.for_model]
    return f"The input is not valid:\n- name: there is no skill {name!r}{suggestion(name, usable)}"
