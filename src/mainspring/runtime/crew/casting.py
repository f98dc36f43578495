"""A type of subagent and who calls it -> the agent that runs on the new thread."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import reduce

from mainspring.core.errors import InvalidInput
from mainspring.core.events import ThreadCreated
from mainspring.core.tool import Tool
from mainspring.harness.limits import Limits
from mainspring.harness.permissions.names import ours
from mainspring.harness.permissions.policy import Mode, parse_mode, stricter
from mainspring.runtime.agent import Agent
from mainspring.runtime.crew.subagent import Subagent
from mainspring.runtime.models import Models

ALL = "*"
_NAMES = re.compile(r"(?:Agent|Task)\(([^)]*)\)")


def cast_as(kind: Subagent, parent: Agent, birth: ThreadCreated, models: Models) -> Agent:
    wanted = None if parent.has_one_model else birth.model or kind.model
    told = (kind.prompt, parent.instructions if kind.reads_instructions else "")
    cast = replace(
        parent,
        name=kind.name,
        description=kind.description,
        instructions="\n\n".join(filter(None, told)),
        model=parent.model if wanted is None else models.related(wanted, parent.model),
        tools=[tool for tool in parent.tools if is_for(kind, tool.spec.name)],
        client_tools=[spec for spec in parent.client_tools if is_for(kind, spec.name)],
        limits=Limits(max_turns=kind.max_turns, max_cost_usd=_money(kind.max_cost_usd)),
        effort=kind.effort or parent.effort,
        subagents=callable_by(kind, parent.subagents),
        skills=parent.skills if is_for(kind, "skill") else (),
        is_coordinator=False,
    )
    own = kind.own
    if own is None:
        return cast
    return replace(cast, built_ins=own.built_ins, client_tools=own.client_tools, skills=own.skills)


def is_for(kind: Subagent, tool: str) -> bool:
    """Whether a subagent may use a tool of its parent's."""
    if _is_named(kind.disallowed_tools, tool):
        return False
    return kind.tools is None or ALL in kind.tools or _is_named(kind.tools, tool)


def only_for(kind: Subagent, tools: Iterable[Tool]) -> list[Tool]:
    return [tool for tool in tools if is_for(kind, tool.spec.name)]


def callable_by(kind: Subagent, known: Sequence[Subagent]) -> tuple[Subagent, ...]:
    """Whom a subagent may call in its turn: `Agent(a, b)` names them."""
    if not is_for(kind, "agent"):
        return ()
    named = [found[1] for text in kind.tools or () if (found := _NAMES.fullmatch(text))]
    if not named:
        return tuple(known)
    allowed = {name.strip() for each in named for name in each.split(",")}
    return tuple(each for each in known if each.name in allowed)


def strictest(kinds: Iterable[Subagent]) -> Mode | None:
    """Of the modes that a type and those above it ask for: nobody is freer than who has called
    them. `None`: they ask for nothing."""
    wanted: list[Mode] = [mode for kind in kinds if (mode := _mode_of(kind)) is not None]
    return reduce(stricter, wanted) if wanted else None


def _mode_of(kind: Subagent) -> Mode | None:
    """What cannot be read asks for nothing."""
    try:
        return None if kind.permission_mode is None else parse_mode(kind.permission_mode)
    except InvalidInput:
        return None


def _is_named(names: Iterable[str], tool: str) -> bool:
    return any(_is_meant(name, tool) for name in names)


def _is_meant(name: str, tool: str) -> bool:
    name = ours(name.partition("(")[0].strip())
    if name.startswith("mcp__"):
        whole = name.removesuffix("*").rstrip("_")
        return tool == name or tool.startswith(f"{whole}__") or whole == "mcp"
    return name == tool


def _money(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        return None
