"""The agent of a node: the runner's agent, or one of its subagents, with what the node declares and
no more than the runner has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import cast

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.core.events import Effort
from mainspring.core.hook import HookEvent, HookResult
from mainspring.core.tool import Call
from mainspring.function_tools.json_schema import schema_problems, supported_keywords
from mainspring.harness.function_hooks import FunctionHook
from mainspring.harness.permissions.policy import Mode
from mainspring.harness.permissions.tool_names import ALIASES, ALL_TOOLS, canonical_name
from mainspring.runtime.agent import Agent
from mainspring.runtime.session_context import Models
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.subagent import Subagent
from mainspring.runtime.subagents.thread_factory import derive_agent, strictest_mode
from mainspring.runtime.workflows.format.definition import EFFORTS, Node
from mainspring.runtime.workflows.format.references import parse_json
from mainspring.runtime.workflows.step_runner import AgentStep, StaticAnswers


def node_agent(
    step: AgentStep, runner: Agent, models: Models, static_answers: StaticAnswers
) -> Agent:
    """Raises: InvalidInput: the runner does not have what the node names."""
    node, workflow = step.node, step.workflow
    base = runner if node.agent is None else _named_agent(node.agent, runner, models)
    limits = base.limits
    if node.max_budget_usd is not None:
        cost = Decimal(str(node.max_budget_usd))
        smaller = cost if limits.max_cost_usd is None else min(cost, limits.max_cost_usd)
        limits = replace(limits, max_cost_usd=smaller)
    default = workflow.model if node.agent is None else None
    wanted = (node.model or default, node.fallback_model or workflow.fallback_model)
    names = [name for name in wanted if name is not None and not base.has_one_model]
    related = [models.related(name, base.model) for name in names]
    model = ",".join(related if wanted[0] and related else [base.model, *related])
    effort = node.effort or (workflow.effort if node.agent is None else None)
    checks = [*base.checks]
    prompt = step.system_prompt
    if (schema := node.output_format) is not None:
        checks.append(_format_check(schema))
        prompt = f"{prompt or base.instructions}\n\n{_format_instruction(schema)}".strip()
    return replace(
        base,
        name=node.id[:60],
        instructions=base.instructions if prompt is None else prompt,
        model=model,
        effort=base.effort if effort is None else cast("Effort", _effort(effort)),
        built_ins=allowed_tools(base.built_ins, node.allowed_tools),
        tools=[item for item in base.tools if _is_allowed(item.spec.name, node)],
        client_tools=[item for item in base.client_tools if _is_allowed(item.name, node)],
        skills=_declared_skills(base.skills, node),
        subagents=[_subagent(name, entry) for name, entry in node.agents.items()],
        hooks=(*base.hooks, *_static_hooks(static_answers, node.hooks)),
        limits=limits,
        checks=checks,
        version=None,
    )


def _static_hooks(
    static_answers: StaticAnswers, hooks: Mapping[str, object]
) -> Iterator[FunctionHook]:
    for event, answer in static_answers(hooks):

        async def run(
            hook_event: HookEvent,
            _call: Call | None,
            answer: Callable[[Collection[str]], HookResult | None] = answer,
        ) -> HookResult | None:
            subject = hook_event.subject
            aliases = [alias for alias, own in ALIASES.items() if own == subject]
            return answer([subject, *aliases] if subject else ())

        yield FunctionHook(event=event, name="the node", run=run)


def node_mode(node: Node, runner: Agent) -> Mode | None:
    """The mode that the subagent of a node wants, if it is the strictest one: others could be
    laxer than the runner's."""
    found = [item for item in runner.subagents if item.name == node.agent]
    mode = strictest_mode(found)
    return mode if mode == "plan" else None


def _named_agent(name: str, runner: Agent, models: Models) -> Agent:
    subagent = next((item for item in runner.subagents if item.name == name), None)
    if subagent is None:
        names = ", ".join(item.name for item in runner.subagents) or "none"
        raise InvalidInput(f"there is no agent {name}; there are: {names}")
    agent = derive_agent(subagent, runner, None, models)
    return (
        agent
        if subagent.own
        else replace(agent, built_ins=allowed_tools(agent.built_ins, subagent.tools))
    )


def denied_tools(node: Node, runner: Agent) -> list[str]:
    """The rules that deny tools to a node."""
    named = [item for item in runner.subagents if item.name == node.agent]
    return [*node.denied_tools, *(name for item in named for name in item.disallowed_tools)]


def allowed_tools(built_ins: Sequence[str], names: Sequence[str] | None) -> tuple[str, ...]:
    """The built-in tools that are named, of those that there are. A name with a pattern allows
    nothing, since the pattern could not be kept."""
    if names is None or ALL_TOOLS in names:
        return tuple(built_ins)
    own = [canonical_name(item) for item in names if "(" not in item]
    return tuple(name for name in own if name in built_ins or ALL_TOOLS in built_ins)


def _is_allowed(tool: str, node: Node) -> bool:
    """Whether a node may use a tool of its agent's program."""
    return node.allowed_tools is None or tool in node.allowed_tools


def _declared_skills(skills: Sequence[Skill], node: Node) -> list[Skill]:
    found = [skill for skill in skills if skill.name in node.skills]
    missing = set(node.skills) - {skill.name for skill in found}
    if missing:
        raise InvalidInput(f"there is no trusted skill {sorted(missing)[0]}")
    return found


def _subagent(name: str, entry: dict[str, object]) -> Subagent:
    tools, model = entry.get("tools"), entry.get("model")
    return Subagent(
        name=name,
        description=str(entry.get("description") or name),
        prompt=str(entry.get("prompt") or ""),
        model=model if isinstance(model, str) else None,
        tools=tuple(map(str, cast("list[object]", tools))) if isinstance(tools, list) else None,
    )


def _effort(effort: str) -> str:
    return "low" if effort == "minimal" else effort if effort in EFFORTS else "none"


def _format_instruction(schema: dict[str, object]) -> str:
    text = msgspec.json.encode(schema).decode()
    return f"Answer with one JSON value that fits this JSON Schema, and nothing else:\n{text}"


def _format_check(schema: dict[str, object]) -> Callable[[str], str | None]:
    def output_format(text: str) -> str | None:
        problem = format_problem(schema, text)
        return None if problem is None else f"{problem}. {_format_instruction(schema)}"

    return output_format


def format_problem(schema: dict[str, object], text: str) -> str | None:
    """Why an answer is not a value of the schema."""
    value = parse_json(text)
    if value is None:
        return "the answer is not JSON"
    return next(schema_problems(value, supported_keywords(schema), "the answer"), None)
